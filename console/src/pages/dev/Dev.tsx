import { Page } from "../../app/shell/Page";

export default function Dev() {
  return <Page crumbs={["Dev"]}>…</Page>;
}
