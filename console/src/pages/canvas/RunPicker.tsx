import { Link } from "wouter";
import { useApi } from "../../api/query";
import { ago, shortId } from "../../ui/format";
import { lookOf } from "../../ui/StateMark/states";
import css from "./RunPicker.module.css";

interface Props {
  workflowId: string;
  runId: string;
  onPick: (runId: string) => void;
}

/** Chooses the run whose states the graph shows. */
export function RunPicker({ workflowId, runId, onPick }: Props) {
  const runs = useApi("GET /api/runs", { query: { workflowId, limit: 10 } });
  const list = runs.data?.runs ?? [];
  if (!list.length) return null;
  return (
    <span className={css.picker}>
      <select aria-label="Show run" value={runId} onChange={(event) => onPick(event.target.value)}>
        <option value="">No run shown</option>
        {list.map((run) => (
          <option key={run.runId} value={run.runId}>
            {lookOf(run.status).sign} {shortId(run.runId)} {run.status}{" "}
            {ago(run.startedAt, Date.now())}
          </option>
        ))}
      </select>
      {runId && <Link href={`/r/${encodeURIComponent(runId)}`}>Open run</Link>}
    </span>
  );
}
