import { Page } from "../../app/shell/Page";

export default function RunPage() {
  return <Page crumbs={["Run"]}>…</Page>;
}
