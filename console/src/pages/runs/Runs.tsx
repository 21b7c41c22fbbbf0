import { useState } from "react";
import { useLocation } from "wouter";
import { useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { useRunList } from "../../runlist/useRunList";
import { Button } from "../../ui/Button/Button";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { Choice, Filters } from "../../ui/Filters/Filters";
import { SINCE, startOf } from "../../ui/since";
import { useAddressFilters } from "../../ui/useAddressFilters";
import { DayCharts } from "./DayCharts";
import { STATUSES } from "./filters";
import { NotRuns } from "./NotRuns";
import { RunList } from "./RunList";
import css from "./Runs.module.css";
import { SearchRuns } from "./SearchRuns";

/** All runs, newest first, with a search in what they said. */
export default function Runs() {
  const [, go] = useLocation();
  const [filters, setFilter] = useAddressFilters("workflow", "status", "q", "since");
  const workflows = useApi("GET /api/workflows");
  const [chosen, setChosen] = useState<string[]>([]);
  const { head, runs, readOlder, isDone, isReady } = useRunList(
    { workflowId: filters.workflow, status: filters.status, search: filters.q },
    startOf(filters.since),
  );
  const isFiltered = Object.values(filters).some(Boolean);
  const choose = (run: string) =>
    setChosen((before) =>
      before.includes(run) ? before.filter((each) => each !== run) : [...before.slice(-1), run],
    );
  return (
    <Page crumbs={["Runs"]} full>
      <div className={css.page}>
        <div className={css.top}>
          <div className={css.tools}>
            <SearchRuns value={filters.q} onSearch={(text) => setFilter("q", text)} />
            <Filters
              count={[filters.status, filters.workflow, filters.since].filter(Boolean).length}
            >
              <Choice
                label="Status"
                value={filters.status}
                onChoose={(value) => setFilter("status", value)}
                options={STATUSES}
              />
              <Choice
                label="Workflow"
                value={filters.workflow}
                onChoose={(value) => setFilter("workflow", value)}
                options={[
                  ["", "any"],
                  ...(workflows.data?.workflows ?? []).map((each): [string, string] => [
                    each.id,
                    each.name,
                  ]),
                ]}
              />
              <Choice
                label="Since"
                value={filters.since}
                onChoose={(value) => setFilter("since", value)}
                options={SINCE}
              />
            </Filters>
          </div>
          <DayCharts workflow={filters.workflow} />
        </div>
        {!isFiltered && head.data && <NotRuns page={head.data} />}
        {chosen.length > 0 && (
          <div className={css.chosen}>
            <span>{chosen.length} selected</span>
            <Button
              look="primary"
              disabled={chosen.length !== 2}
              title={chosen.length === 2 ? undefined : "Select two runs."}
              onClick={() => go(`/compare/${[...chosen].sort(byAge(runs)).join("/")}`)}
            >
              Compare
            </Button>
            <Button onClick={() => setChosen([])}>Clear</Button>
          </div>
        )}
        {head.error && !isReady ? (
          <Failure error={head.error} retry={() => void head.refetch()} />
        ) : isReady && runs.length === 0 ? (
          <Empty>{isFiltered ? "No run is like this." : "Nothing has run yet."}</Empty>
        ) : (
          <RunList
            runs={runs}
            chosen={chosen}
            onChoose={choose}
            onEnd={readOlder}
            isDone={isDone}
          />
        )}
      </div>
    </Page>
  );
}

/** The older run first, whichever was selected first. */
function byAge(runs: { runId: string }[]) {
  const at = new Map(runs.map((run, index) => [run.runId, index]));
  return (a: string, b: string) => (at.get(b) ?? 0) - (at.get(a) ?? 0);
}
