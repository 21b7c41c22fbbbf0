import { Link, useParams } from "wouter";
import { useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { Changes } from "../../diff/Changes";
import { runAddress, useQuery } from "../../run/address";
import { isLiveStatus } from "../../run/useRun";
import { shortId } from "../../ui/format";
import { safeText } from "../../ui/safeText";
import css from "./ChangesPage.module.css";

/** What a run, or one step or round of it, changed: on a page of its own. */
export default function ChangesPage() {
  const { run: runId = "" } = useParams<{ run: string }>();
  const [query, set] = useQuery();
  const step = query.get("step") ?? "";
  const detail = useApi("GET /api/runs/{run_id}", { path: { run_id: runId } });
  const found = detail.data?.run;
  const name = found?.kind === "run" ? found.workflowName : "";
  return (
    <Page crumbs={["Runs", `${name} ${shortId(runId)}`.trim(), "Changes"]} full>
      <p className={css.bar}>
        <Link href={runAddress(runId, { step: step || null, tab: "changes" })}>
          Run <code>{shortId(runId)}</code>
        </Link>
        <span>{step ? <code>{safeText(step)}</code> : "the whole run"}</span>
        {step && (
          <button type="button" className={css.whole} onClick={() => set({ step: null })}>
            Show the whole run
          </button>
        )}
      </p>
      <Changes
        runId={runId}
        step={step}
        file={query.get("file") ?? ""}
        onChoose={(file) => set({ file })}
        isLive={isLiveStatus(found?.status)}
      />
    </Page>
  );
}
