import { Page } from "../../app/shell/Page";

export default function Workflows() {
  return <Page crumbs={["Workflows"]}>…</Page>;
}
