import { Page } from "../../app/shell/Page";

export default function Compare() {
  return <Page crumbs={["Compare"]}>…</Page>;
}
