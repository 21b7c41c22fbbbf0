import { Page } from "../../app/shell/Page";

export default function Dispatch() {
  return <Page crumbs={["Dispatch"]}>…</Page>;
}
