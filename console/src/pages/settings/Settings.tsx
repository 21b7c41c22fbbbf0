import { Page } from "../../app/shell/Page";
import { Button } from "../../ui/Button/Button";

export default function Settings() {
  return (
    <Page crumbs={["Settings"]}>
      <form method="post" action="/logout">
        <Button type="submit">Log out</Button>
      </form>
    </Page>
  );
}
