import { useParams } from "wouter";
import { Page } from "../../app/shell/Page";
import { useRun } from "../../run/useRun";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { shortId } from "../../ui/format";
import { RunPanes } from "./RunPanes";

/** A run, live or from history: drawn from its own journal and its own definition. */
export default function RunPage() {
  const { run: runId = "" } = useParams<{ run: string }>();
  return <Shown key={runId} runId={runId} />;
}

function Shown({ runId }: { runId: string }) {
  const view = useRun(runId);
  const name = view.run?.workflowName ?? view.queued?.workflowId ?? "";
  return (
    <Page crumbs={["Runs", `${name} ${shortId(runId)}`.trim()]} full>
      {view.error !== null && !view.run && <Failure error={view.error} />}
      {view.queued && (
        <Empty>
          ○ {view.queued.status}
          {view.queued.status === "queued" && `, position ${view.queued.position}`}
          {view.queued.reason && `: ${view.queued.reason}`}
        </Empty>
      )}
      {view.run && <RunPanes view={view} run={view.run} />}
    </Page>
  );
}
