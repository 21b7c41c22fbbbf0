import { useReactFlow } from "@xyflow/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useLocation, useSearchParams } from "wouter";
import { useStore } from "zustand";
import type { ShownProblem } from "../../api/generated";
import { useApi } from "../../api/query";
import { AddPanel } from "../../canvas/AddPanel";
import { Canvas } from "../../canvas/Canvas";
import { ConflictDialog } from "../../canvas/ConflictDialog";
import { useChosenNode, useEditor, useEditorState } from "../../canvas/editor";
import { FIT_OPTIONS, useFocusNode, useReveal } from "../../canvas/GraphView";
import { NodePanel } from "../../canvas/NodePanel";
import { ProblemList } from "../../canvas/ProblemList";
import type { Saver } from "../../canvas/saving";
import { TextView } from "../../canvas/TextView";
import {
  ProblemsButton,
  SavedState,
  SelectionBar,
  UndoRedo,
  useGrouping,
  ViewBar,
} from "../../canvas/Toolbar";
import { useRunStates } from "../../canvas/useRunStates";
import { useRunWorkflow } from "../../form/useRunWorkflow";
import { edgeKeys, freshId, type JsonObject } from "../../model/workflow";
import { Button } from "../../ui/Button/Button";
import { preloadEditor } from "../../ui/CodeEditor/CodeEditor";
import { Dialog } from "../../ui/Dialog/Dialog";
import { Menu } from "../../ui/Menu/Menu";
import { complain } from "../../ui/Toast/toast";
import { useNarrow } from "../../ui/useNarrow";
import { RunPicker } from "./RunPicker";
import css from "./Studio.module.css";
import { useCanvasKeys } from "./useCanvasKeys";
import { useClipboard } from "./useClipboard";
import { useHold } from "./useHold";

type View = "graph" | "split" | "json";
const VIEWS: Record<View, string> = { graph: "Graph", split: "Split", json: "JSON" };

/** The canvas with everything around it. */
export function Studio({ saver }: { saver: Saver }) {
  const editor = useEditor();
  const [, go] = useLocation();
  const [search, setSearch] = useSearchParams();
  const { id, name } = useEditorState((state) => state.saved);
  const version = useEditorState((state) => state.version);
  const conflict = useStore(saver, (state) => state.conflict);
  const isNarrow = useNarrow();
  const view = (search.get("view") ?? "graph") as View;
  const chosen = useChosenNode();
  const [isSheetOpen, setSheet] = useState(false);
  const [isAdding, setAdding] = useState(false);
  const [problemAt, setProblemAt] = useState(-1);
  const [showProblems, setShowProblems] = useState(false);
  const add = useRef<HTMLInputElement>(null);
  const focusNode = useFocusNode();
  const reveal = useReveal();
  const { fitView } = useReactFlow();
  const grouping = useGrouping();
  const runner = useRunWorkflow();
  const workflows = useApi("GET /api/workflows");
  const entry = workflows.data?.workflows.find((each) => each.id === id);
  useHold(saver, id, entry);
  const runId =
    search.get("run") ?? (entry?.lastRun?.status === "running" ? entry.lastRun.runId : "");
  const states = useRunStates(id, runId);
  const lastOutputs = useLastOutputs(runId || entry?.lastRun?.runId || "");

  const set = useCallback(
    (key: string, value: string) =>
      setSearch(
        (now) => {
          const next = new URLSearchParams(now);
          if (value) next.set(key, value);
          else next.delete(key);
          return next;
        },
        { replace: true },
      ),
    [setSearch],
  );
  // The chosen node is part of the address, both ways.
  const wanted = useRef(search.get("node") ?? "");
  useEffect(() => {
    if (wanted.current) {
      editor.select([wanted.current]);
      focusNode(wanted.current);
      wanted.current = "";
    }
  }, [editor, focusNode]);
  useEffect(() => set("node", chosen ?? ""), [set, chosen]);
  // The settings take room from the graph: the chosen node stays in sight.
  useEffect(() => {
    if (chosen) setTimeout(() => reveal(chosen), 60);
  }, [chosen, reveal]);

  const editNode = useCallback(() => {
    setSheet(true);
    requestAnimationFrame(() =>
      document
        .querySelector<HTMLElement>(
          `aside[aria-label="Node settings"] :is(input, textarea, select)`,
        )
        ?.focus(),
    );
  }, []);
  const goToProblem = useCallback(
    (problem: ShownProblem, at: number) => {
      setProblemAt(at);
      setShowProblems(true);
      const { history } = editor.getState();
      const key = typeof problem.edge === "number" && edgeKeys(history.present.edges)[problem.edge];
      if (problem.nodeId) {
        editor.select([problem.nodeId]);
        focusNode(problem.nodeId);
      } else if (key) editor.select([], [key]);
    },
    [editor, focusNode],
  );
  const run = useCallback(async () => {
    if (await saver.save()) await runner.run(id);
  }, [saver, runner.run, id]);
  const saveCopy = useCallback(async () => {
    const taken = new Set(workflows.data?.workflows.map((each) => each.id));
    try {
      const copy = await saver.saveCopy(freshId(taken, `${id}-copy`), `${name} (copy)`);
      go(`/w/${encodeURIComponent(copy)}`);
    } catch (error) {
      complain(error);
    }
  }, [workflows.data, saver, id, name, go]);

  const keys = useCanvasKeys({
    add: () => (isNarrow ? setAdding(true) : add.current?.focus()),
    edit: editNode,
    group: grouping.start,
    nextProblem: () => {
      const { problems } = editor.getState();
      const at = (problemAt + 1) % Math.max(1, problems.length);
      if (problems[at]) goToProblem(problems[at], at);
    },
    run: () => void run(),
    save: () => void saver.save(),
  });
  useClipboard();
  useEffect(() => {
    const timer = setTimeout(preloadEditor, 1_000);
    return () => clearTimeout(timer);
  }, []);
  const onAdded = useCallback(
    (added: string) => {
      setAdding(false);
      setTimeout(() => focusNode(added), 30);
    },
    [focusNode],
  );
  useEffect(() => {
    if (view) setTimeout(() => void fitView(FIT_OPTIONS), 60);
  }, [view, fitView]);
  const panel = chosen !== undefined && (!isNarrow || isSheetOpen);
  return (
    <div className={css.studio}>
      <header className={css.bar}>
        <span className={css.title}>
          <span className={css.name} title={entry?.file}>
            {name} <span className="quiet">v{version ?? 1}</span>
          </span>
          <SavedState saver={saver} />
        </span>
        <fieldset className={css.views}>
          <legend className="visually-hidden">View</legend>
          {(Object.keys(VIEWS) as View[]).map((each) => (
            <Button
              key={each}
              look="plain"
              aria-pressed={view === each}
              className={css.viewButton}
              onClick={() => set("view", each === "graph" ? "" : each)}
            >
              {VIEWS[each]}
            </Button>
          ))}
        </fieldset>
        <UndoRedo />
        <ProblemsButton isOpen={showProblems} onClick={() => setShowProblems(!showProblems)} />
        <RunPicker workflowId={id} runId={runId} onPick={(picked) => set("run", picked)} />
        <span className={css.start}>
          <Button
            look="primary"
            aria-keyshortcuts="Control+Enter"
            disabled={runner.isBusy}
            onClick={() => void run()}
          >
            Run
          </Button>
          <Menu
            label="More"
            items={[
              {
                label: "Run with inputs…",
                onSelect: () => void saver.save().then((ok) => ok && runner.ask(id)),
              },
              { label: "Save as copy", onSelect: () => void saveCopy() },
            ]}
          >
            ▾
          </Menu>
        </span>
      </header>
      <div className={css.content}>
        {view !== "json" && !isNarrow && <AddPanel input={add} onAdded={onAdded} />}
        {view !== "json" && (
          <div className={css.canvas}>
            <Canvas states={states} onEdit={editNode} />
            <SelectionBar onGroup={grouping.start} />
            <ViewBar />
            {isNarrow && (
              <div className={css.actions}>
                {chosen && <Button onClick={() => setSheet(true)}>Edit {chosen}</Button>}
                <Button onClick={() => setAdding(true)}>Add node</Button>
              </div>
            )}
          </div>
        )}
        {view !== "graph" && <TextView />}
        {panel && view !== "json" && (
          <NodePanel
            key={chosen}
            node={chosen}
            lastOutputs={lastOutputs}
            onClose={() => {
              setSheet(false);
              if (isNarrow) return;
              focusNode(chosen);
              editor.select([]);
            }}
          />
        )}
      </div>
      {showProblems && <ProblemList current={problemAt} onGo={goToProblem} />}
      {isAdding && (
        <Dialog title="Add node" onClose={() => setAdding(false)}>
          <AddPanel input={add} onAdded={onAdded} />
        </Dialog>
      )}
      {conflict && <Conflict saver={saver} onCopy={() => void saveCopy()} />}
      {grouping.dialog}
      {keys}
      {runner.dialog}
    </div>
  );
}

function Conflict({ saver, onCopy }: { saver: Saver; onCopy: () => void }) {
  const base = useEditorState((state) => state.saved);
  const mine = useEditorState((state) => state.history.present);
  const theirs = useStore(saver, (state) => state.conflict);
  if (!theirs) return null;
  return (
    <ConflictDialog
      base={base}
      mine={mine}
      theirs={theirs}
      onMerge={(merged) => void saver.resolve(merged)}
      onCopy={onCopy}
      onClose={() => saver.setState({ conflict: null })}
    />
  );
}

/** What each node gave in a run, for the completion of references. */
function useLastOutputs(runId: string): Record<string, JsonObject> | undefined {
  const answer = useApi(
    "GET /api/runs/{run_id}",
    { path: { run_id: runId } },
    { enabled: Boolean(runId), staleTime: 10_000 },
  );
  const run = answer.data?.run;
  const scope = run?.kind === "run" ? run.scope : undefined;
  return useMemo(() => scope as Record<string, JsonObject> | undefined, [scope]);
}
