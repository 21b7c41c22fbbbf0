import { Empty } from "../ui/Empty/Empty";

/** The run on its own workflow. */
export function Graph(_: { runId: string; onSelect: (path: string) => void }) {
  return <Empty>The graph of this run is not here yet.</Empty>;
}
