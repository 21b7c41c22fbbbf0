import { useCallback, useMemo } from "react";
import { useLocation } from "wouter";
import type { RunDetail } from "../../api/generated";
import { useActions } from "../../app/palette";
import { useRunActions } from "../../run/actions";
import { useQuery } from "../../run/address";
import { Graph } from "../../run/Graph";
import { Header } from "../../run/Header";
import { StepList } from "../../run/StepList";
import type { RunView } from "../../run/useRun";
import { useSelection } from "../../run/useSelection";
import { Why } from "../../run/Why";
import { Timeline } from "../../timeline/Timeline";
import { Tabs } from "../../ui/Tabs/Tabs";
import { useNarrow } from "../../ui/useNarrow";
import { useNow } from "../../ui/useNow";
import { menuItems } from "./menu";
import { RunDialogs } from "./RunDialogs";
import css from "./RunPage.module.css";
import { DETAILS, StepDetail, type TabName } from "./StepDetail";

type ViewName = "timeline" | "graph";
type PhoneTab = TabName | "steps" | "graph";

const VIEWS: { id: ViewName; name: string }[] = [
  { id: "timeline", name: "Timeline" },
  { id: "graph", name: "Graph" },
];
const PHONE: { id: PhoneTab; name: string }[] = [
  { id: "steps", name: "Steps" },
  { id: "log", name: "Log" },
  { id: "changes", name: "Changes" },
  { id: "graph", name: "Graph" },
  { id: "io", name: "In & out" },
  { id: "events", name: "Events" },
];

/** Header, Why, steps at the left, timeline or graph above, and what the chosen step did below. */
export function RunPanes({ view, run }: { view: RunView; run: RunDetail }) {
  const [query, set] = useQuery();
  const [, go] = useLocation();
  const isNarrow = useNarrow();
  const actions = useRunActions(run.runId);
  const selected = query.get("step") ?? "";
  const shownView: ViewName = query.get("view") === "graph" ? "graph" : "timeline";
  const select = useCallback((step: string) => set({ step, seq: null }), [set]);
  const { steps } = view.known;
  const { tree, lines, toggle, unfold } = useSelection(steps, selected, select);
  const ticking = useNow();
  const now = view.isLive ? ticking : (run.finishedAt ?? run.startedAt);
  const items = useMemo(() => menuItems(run, actions, go), [run, actions, go]);
  const offered = useMemo(
    () => items.map((item) => ({ label: item.label, run: item.onSelect, disabled: item.disabled })),
    [items],
  );
  useActions(offered);

  const list = (
    <StepList
      lines={lines}
      selected={selected}
      now={now}
      onSelect={select}
      onToggle={toggle}
      onUnfold={unfold}
    />
  );
  const timeline = (
    <Timeline steps={steps} tree={tree} now={now} selected={selected} onSelect={select} />
  );
  const graph = (
    <Graph runId={run.runId} steps={steps} tree={tree} selected={selected} onSelect={select} />
  );
  const detail = (tab: TabName) => (
    <StepDetail
      tab={tab}
      view={view}
      run={run}
      selected={selected}
      query={query}
      set={set}
      actions={actions}
    />
  );
  const tab = query.get("tab");
  return (
    <>
      <Header
        run={run}
        isLive={view.isLive}
        isStopping={actions.isStopping}
        isAsking={(view.why?.approvals.length ?? 0) > 0}
        onStop={actions.stop}
        items={items}
      />
      {view.why && <Why why={view.why} steps={steps} actions={actions} onSelect={select} />}
      {isNarrow ? (
        <Tabs<PhoneTab>
          label="Parts of the run"
          tabs={PHONE}
          chosen={PHONE.find((each) => each.id === tab)?.id ?? "steps"}
          onChoose={(chosen) => set({ tab: chosen })}
          className={css.phone}
        >
          {tab === "graph" ? graph : isDetail(tab) ? detail(tab) : list}
        </Tabs>
      ) : (
        <div className={css.panes}>
          <div className={css.steps}>{list}</div>
          <div className={css.right}>
            <Tabs<ViewName>
              label="Overview"
              tabs={VIEWS}
              chosen={shownView}
              onChoose={(chosen) => set({ view: chosen })}
              className={shownView === "graph" ? css.graph : css.overview}
            >
              {shownView === "graph" ? graph : timeline}
            </Tabs>
            <Tabs<TabName>
              label="Details"
              tabs={DETAILS}
              chosen={isDetail(tab) ? tab : "log"}
              onChoose={(chosen) => set({ tab: chosen })}
              className={css.detail}
            >
              {detail(isDetail(tab) ? tab : "log")}
            </Tabs>
          </div>
        </div>
      )}
      <RunDialogs run={run} why={view.why} actions={actions} />
    </>
  );
}

function isDetail(tab: string | null): tab is TabName {
  return DETAILS.some((each) => each.id === tab);
}
