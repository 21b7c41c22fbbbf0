import { Page } from "../../app/shell/Page";

export default function Runs() {
  return <Page crumbs={["Runs"]}>…</Page>;
}
