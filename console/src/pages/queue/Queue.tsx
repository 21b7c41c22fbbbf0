import { Page } from "../../app/shell/Page";

export default function Queue() {
  return <Page crumbs={["Queue"]}>…</Page>;
}
