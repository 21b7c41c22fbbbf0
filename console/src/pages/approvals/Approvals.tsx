import { Page } from "../../app/shell/Page";

export default function Approvals() {
  return <Page crumbs={["Approvals"]}>…</Page>;
}
