import { Link, useParams } from "wouter";
import { call } from "../../api/client";
import type { DevStatus, ProcessStatus } from "../../api/generated";
import { refresh } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { Button } from "../../ui/Button/Button";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { plural } from "../../ui/format";
import { Panel } from "../../ui/Panel/Panel";
import { Split } from "../../ui/Split/Split";
import { StateMark } from "../../ui/StateMark/StateMark";
import { safeText } from "../../ui/safeText";
import { complain, say } from "../../ui/Toast/toast";
import css from "./Dev.module.css";
import { lookOfProcess } from "./looks";
import { ProcessLog } from "./ProcessLog";
import { useDevLoops } from "./useDevLoops";

/** The processes of development loops that run beside the server. */
export default function Dev() {
  const { process = "" } = useParams();
  const read = useDevLoops();
  const loops = read.data?.loops ?? [];
  const names = loops.flatMap((loop) => (loop.processes ?? []).map((each) => each.name));
  const shown = process ? decodeURIComponent(process) : names[0];
  if (read.data && loops.length === 0) {
    return (
      <Page crumbs={["Dev loop"]}>
        <Empty>
          No development loop runs. <code>infloop dev</code> in a project starts one: it runs the
          project’s processes, restarts them as files change, and hands failures to an agent.
        </Empty>
      </Page>
    );
  }
  return (
    <Page crumbs={["Dev loop"]} full>
      <Split
        side={
          <>
            {read.error && !read.data && <Failure error={read.error} />}
            {loops.map((loop) => (
              <Loop key={loop.stateFile} loop={loop} shown={shown} />
            ))}
          </>
        }
        isChosen={Boolean(process)}
        back={{ href: "/dev", label: "All processes" }}
        look="log"
        label="Log"
      >
        {shown && <ProcessLog key={shown} name={shown} />}
      </Split>
    </Page>
  );
}

function Loop({ loop, shown }: { loop: DevStatus; shown: string | undefined }) {
  return (
    <Panel title={loop.root}>
      {loop.runId && (
        <p>
          <Link href={`/r/${loop.runId}`}>An agent works on it</Link>
        </p>
      )}
      {(loop.processes ?? []).map((each) => (
        <Process key={each.name} process={each} isShown={each.name === shown} />
      ))}
    </Panel>
  );
}

function Process({ process, isShown }: { process: ProcessStatus; isShown: boolean }) {
  const restart = () =>
    call("POST /api/dev/{name}/restart", { path: { name: process.name } })
      .then(() => {
        say(`${process.name} restarts.`);
        refresh("GET /api/dev");
      })
      .catch(complain);
  const cause = causeOf(process);
  const isSaid = cause.endsWith(process.detail ?? "");
  const why = isSaid ? cause : [process.detail, cause].filter(Boolean).join(", because: ");
  return (
    <div className={css.process} aria-current={isShown || undefined}>
      <div className={css.line}>
        <Link href={`/dev/${encodeURIComponent(process.name)}`} className={css.name}>
          {process.name}
        </Link>
        <StateMark state={process.state} look={lookOfProcess(process.state)} />
        {(process.restarts ?? 0) > 0 && (
          <span className="quiet">{plural(process.restarts ?? 0, "restart")}</span>
        )}
        {process.pid ? <span className="number quiet">pid {process.pid}</span> : null}
        <span className={css.end}>
          <Button aria-label={`Restart ${process.name}`} onClick={() => void restart()}>
            Restart
          </Button>
        </span>
      </div>
      {why && <p className={css.cause}>{safeText(why)}</p>}
    </div>
  );
}

/** Return why a process was started again, where the server says so. */
function causeOf(process: ProcessStatus & { cause?: string }): string {
  return process.cause ?? "";
}
