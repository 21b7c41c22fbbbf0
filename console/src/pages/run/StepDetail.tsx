import type { RunDetail } from "../../api/generated";
import { Changes } from "../../diff/Changes";
import { Log } from "../../log/Log";
import type { RunActions } from "../../run/actions";
import type { useQuery } from "../../run/address";
import { Events } from "../../run/Events";
import { InOut } from "../../run/InOut";
import { StepBar } from "../../run/StepBar";
import type { RunView } from "../../run/useRun";

export type TabName = "log" | "io" | "changes" | "events";

export const DETAILS: { id: TabName; name: string }[] = [
  { id: "log", name: "Log" },
  { id: "io", name: "In & out" },
  { id: "changes", name: "Changes" },
  { id: "events", name: "Events" },
];

interface Props {
  tab: TabName;
  view: RunView;
  run: RunDetail;
  selected: string;
  query: ReturnType<typeof useQuery>[0];
  set: ReturnType<typeof useQuery>[1];
  actions: RunActions;
}

/** What the chosen step or round did, or the whole run. */
export function StepDetail({ tab, view, run, selected, query, set, actions }: Props) {
  const { known, journal } = view;
  const step = known.steps.findLast((each) => each.path === selected) ?? null;
  const shown = {
    log: () =>
      known.first !== null && (
        <Log
          key={`${selected} ${known.first}`}
          journal={journal}
          step={selected}
          first={known.first}
          linked={query.get("seq") ?? ""}
          onLink={(seq) => set({ seq })}
        />
      ),
    io: () => <InOut run={run} why={view.why} step={step} />,
    changes: () => (
      <Changes
        runId={run.runId}
        step={selected}
        file={query.get("file") ?? ""}
        onChoose={(file) => set({ file })}
        isLive={view.isLive}
      />
    ),
    events: () => <Events runId={run.runId} step={selected} told={known.events} />,
  };
  return (
    <>
      {selected && (
        <StepBar
          path={selected}
          step={step}
          canRewind={!view.isLive}
          onRewind={() => actions.ask({ what: "rewind", step: selected })}
          onClear={() => set({ step: null, seq: null })}
        />
      )}
      {shown[tab]()}
    </>
  );
}
