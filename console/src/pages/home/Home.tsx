import { useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { Failure } from "../../ui/Failure/Failure";
import { Asked } from "./Asked";
import { FirstVisit } from "./FirstVisit";
import css from "./Home.module.css";
import { JustEnded } from "./JustEnded";
import { Running } from "./Running";
import { StartButtons } from "./StartButtons";
import { Today } from "./Today";

/** What waits for you, what runs, what ended, and what it cost today. */
export default function Home() {
  const runs = useApi("GET /api/runs", { query: { limit: 50 } }, { refetchInterval: 5_000 });
  const workflows = useApi("GET /api/workflows");
  const all = runs.data?.runs ?? [];
  const own = workflows.data?.workflows.filter((each) => each.source === "user");
  const isFirst = runs.data?.runs.length === 0 && own?.length === 0;
  return (
    <Page crumbs={["Home"]}>
      {runs.error && !runs.data && <Failure error={runs.error} retry={() => void runs.refetch()} />}
      <Asked />
      {isFirst ? (
        <FirstVisit />
      ) : (
        <>
          <Running recent={all} />
          <div className={css.two}>
            <JustEnded runs={all} isReady={runs.data !== undefined} />
            <Today />
          </div>
        </>
      )}
      <StartButtons last={all[0]} />
    </Page>
  );
}
