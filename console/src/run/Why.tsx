import { Link } from "wouter";
import type { Explanation, NextAction } from "../api/generated";
import { Button } from "../ui/Button/Button";
import { safeText } from "../ui/safeText";
import type { RunActions } from "./actions";
import { runAddress } from "./address";
import type { Step } from "./steps";
import css from "./Why.module.css";
import { lastLines, type WhyLine, whyLines } from "./why";

interface Props {
  why: Explanation;
  steps: readonly Step[];
  actions: RunActions;
  onSelect: (step: string) => void;
}

/** Why the run is in its state, and what makes sense next. */
export function Why({ why, steps, actions, onSelect }: Props) {
  const [first, ...rest] = whyLines(why, steps);
  const said = lastLines(why);
  const tone = { failed: "bad", stalled: "stall", interrupted: "stall", paused: "hold" }[
    why.run.status as string
  ];
  return (
    <section aria-label="Why" className={css.why} data-tone={first?.approval ? "ask" : tone}>
      <div className={css.main}>
        <p className={css.line}>
          <strong>Why:</strong> {first && <Line line={first} onSelect={onSelect} />}
          {said.length > 0 && why.run.status !== "succeeded" && (
            <q className={css.said}>{safeText(said.at(-1) ?? "")}</q>
          )}
        </p>
        <span className={css.next}>
          {first?.approval && (
            <Link
              href={`/approvals/${encodeURIComponent(first.approval.id)}`}
              className={css.review}
            >
              Review
            </Link>
          )}
          {why.next.map((next) => (
            <Next key={`${next.action}${next.step}`} next={next} why={why} actions={actions} />
          ))}
        </span>
      </div>
      {rest.length > 0 && (
        <details className={css.more}>
          <summary>{rest.length} more</summary>
          <ul>
            {rest.map((line) => (
              <li key={line.text}>
                <Line line={line} onSelect={onSelect} />
              </li>
            ))}
          </ul>
          {said.length > 0 && <pre className={css.output}>{safeText(said.join("\n"))}</pre>}
        </details>
      )}
    </section>
  );
}

function Line({ line, onSelect }: { line: WhyLine; onSelect: (step: string) => void }) {
  const text = safeText(line.text);
  if (line.run) return <Link href={runAddress(line.run)}>{text}</Link>;
  if (!line.step) return <span>{text}</span>;
  const step = line.step;
  return (
    <button type="button" className={css.link} onClick={() => onSelect(step)}>
      {text}
    </button>
  );
}

/** A button for an action; some actions are the page itself and need none. */
function Next({ next, why, actions }: { next: NextAction; why: Explanation; actions: RunActions }) {
  const step = next.step ?? "";
  const buttons: Partial<Record<NextAction["action"], [string, () => void]>> = {
    resume: ["Resume", () => actions.resume()],
    "take-over": ["Take over", () => actions.resume({ takeOver: true })],
    "raise-limit": ["Raise limit…", () => actions.ask({ what: "raise-limit" })],
    rewind: [`Rewind to ${step}`, () => actions.ask({ what: "rewind", step })],
    apply: ["Apply…", () => actions.ask({ what: "apply" })],
  };
  if (next.action === "diff") {
    return (
      <Link href={runAddress(why.run.runId, {}, "/changes")} className={css.review}>
        Changes
      </Link>
    );
  }
  const [label, act] = buttons[next.action] ?? [];
  return label && act ? <Button onClick={act}>{safeText(label)}</Button> : null;
}
