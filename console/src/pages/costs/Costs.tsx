import { Page } from "../../app/shell/Page";

export default function Costs() {
  return <Page crumbs={["Costs"]}>…</Page>;
}
