import { Page } from "../../app/shell/Page";

export default function Connections() {
  return <Page crumbs={["Connections"]}>…</Page>;
}
