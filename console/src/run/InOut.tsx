import { useEffect } from "react";
import type { Explanation, RunDetail } from "../api/generated";
import { useApi } from "../api/query";
import { Failure } from "../ui/Failure/Failure";
import { dateTime, duration, money } from "../ui/format";
import { Panel } from "../ui/Panel/Panel";
import { Scroll } from "../ui/Scroll/Scroll";
import { safeText } from "../ui/safeText";
import css from "./InOut.module.css";
import { END } from "./journal";
import { isOpen, type Step } from "./steps";
import { Values } from "./Value";

interface Props {
  run: RunDetail;
  why: Explanation | null;
  step: Step | null;
}

/** What a step was given and what it gave; without a step, the same of the run. */
export function InOut({ run, why, step }: Props) {
  return (
    <Scroll className={css.page}>
      {step ? <OfStep run={run} step={step} /> : <OfRun run={run} why={why} />}
    </Scroll>
  );
}

function OfRun({ run, why }: { run: RunDetail; why: Explanation | null }) {
  return (
    <>
      <Panel title="Inputs">
        <Values values={why?.inputs ?? {}} none="The run has no inputs." />
      </Panel>
      <Panel title="Outputs of its nodes">
        <Values values={run.scope} none="Nothing yet." />
      </Panel>
      <Warnings texts={[...(why?.denials ?? []), ...(why?.notices ?? []).map((n) => n.message)]} />
      <Panel title="Cost">
        <Figures
          figures={{
            Cost: money(run.costUsd, run.costIsComplete),
            "Tokens in": String(run.tokens.input),
            "Tokens out": String(run.tokens.output),
            "Tokens from cache": String(run.tokens.cached),
            Steps: String(run.steps),
            Directory: why?.workdir ?? "",
            Began: dateTime(run.startedAt),
          }}
        />
      </Panel>
    </>
  );
}

function OfStep({ run, step }: { run: RunDetail; step: Step }) {
  const query = { before: END, step: step.path, output: false, limit: 500 };
  const page = useApi(
    "GET /api/runs/{run_id}/log",
    { path: { run_id: run.runId }, query },
    { refetchInterval: isOpen(step) ? 3_000 : false },
  );
  const { refetch } = page;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a step that ends has outputs
  useEffect(() => void refetch(), [refetch, step.state]);
  if (page.error) return <Failure error={page.error} retry={() => void refetch()} />;
  const events = page.data?.events.filter((each) => each.stepPath === step.path) ?? [];
  const began = events.findLast((each) => each.type === "node_started");
  const ended = events.findLast((each) => each.type === "node_finished");
  const warnings = events.flatMap((each) => {
    if (each.type === "notice") return [each.message];
    if (each.type !== "template_warning") return [];
    return [`{{${each.missingKey}}} in ${each.field} does not exist, so it is empty`];
  });
  return (
    <>
      {step.error && <p className={css.error}>{safeText(step.error)}</p>}
      <Panel title="In: resolved configuration">
        <Values values={began?.resolvedConfig ?? {}} none="Nothing." />
      </Panel>
      <Panel title="Out">
        <Values
          values={ended?.outputs ?? {}}
          none={isOpen(step) ? "Not yet: the step is open." : "Nothing."}
        />
      </Panel>
      <Warnings texts={warnings} />
      <Panel title="Cost">
        <Figures
          figures={{
            Cost: money(step.costUsd),
            "Tokens in": String(step.inputTokens),
            "Tokens out": String(step.outputTokens),
            Took: duration(step.durationMs),
            "Left by": step.handle || "–",
            Attempt: String(step.attempt),
            Began: dateTime(step.startedAt),
          }}
        />
      </Panel>
    </>
  );
}

function Warnings({ texts }: { texts: string[] }) {
  if (!texts.length) return null;
  return (
    <Panel title="Warnings">
      <ul className={css.warnings}>
        {texts.map((text) => (
          <li key={text}>{safeText(text)}</li>
        ))}
      </ul>
    </Panel>
  );
}

function Figures({ figures }: { figures: Record<string, string> }) {
  return (
    <dl className={css.figures}>
      {Object.entries(figures).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{safeText(value)}</dd>
        </div>
      ))}
    </dl>
  );
}
