import { Page } from "../../app/shell/Page";

export default function Audit() {
  return <Page crumbs={["Audit"]}>…</Page>;
}
