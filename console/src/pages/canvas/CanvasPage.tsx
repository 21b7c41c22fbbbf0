import { Page } from "../../app/shell/Page";

export default function CanvasPage() {
  return <Page crumbs={["Canvas"]}>…</Page>;
}
