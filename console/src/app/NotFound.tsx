import { Link } from "wouter";
import { Empty } from "../ui/Empty/Empty";
import { Page } from "./shell/Page";

export function NotFound() {
  return (
    <Page crumbs={["Not found"]}>
      <Empty>
        There is no page at this address. <Link href="/">Home</Link>
      </Empty>
    </Page>
  );
}
