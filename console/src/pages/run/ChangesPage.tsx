import { Page } from "../../app/shell/Page";

export default function ChangesPage() {
  return <Page crumbs={["Changes"]}>…</Page>;
}
