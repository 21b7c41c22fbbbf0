import { Page } from "../../app/shell/Page";

export default function Home() {
  return <Page crumbs={["Home"]}>…</Page>;
}
