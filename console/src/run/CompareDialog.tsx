import { Link } from "wouter";
import { useApi } from "../api/query";
import { Dialog } from "../ui/Dialog/Dialog";
import { Empty } from "../ui/Empty/Empty";
import { ago, duration, money, shortId } from "../ui/format";
import { StateMark } from "../ui/StateMark/StateMark";
import css from "./Dialogs.module.css";

interface Props {
  runId: string;
  workflowId: string;
  onClose: () => void;
}

/** Chooses the run to compare with: one of the same workflow. */
export function CompareDialog({ runId, workflowId, onClose }: Props) {
  const page = useApi("GET /api/runs", { query: { workflowId, limit: 30 } });
  const others = page.data?.runs.filter((run) => run.runId !== runId) ?? [];
  return (
    <Dialog title="Compare with" onClose={onClose}>
      {page.data && others.length === 0 && <Empty>This workflow has no other run.</Empty>}
      <div className={css.runs}>
        {others.map((run) => (
          <Link
            key={run.runId}
            className={css.run}
            href={`/compare/${encodeURIComponent(run.runId)}/${encodeURIComponent(runId)}`}
          >
            <code>{shortId(run.runId)}</code>
            <StateMark state={run.status} />
            <span className="number">{duration(run.durationMs)}</span>
            <span className="number">{money(run.costUsd, run.costIsComplete)}</span>
            <span className="quiet">{ago(run.startedAt, Date.now())}</span>
          </Link>
        ))}
      </div>
    </Dialog>
  );
}
