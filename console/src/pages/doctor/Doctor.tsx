import { Page } from "../../app/shell/Page";

export default function Doctor() {
  return <Page crumbs={["Doctor"]}>…</Page>;
}
