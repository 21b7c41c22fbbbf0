import type { ReactNode } from "react";
import { Link } from "wouter";
import { Counts } from "../diff/FileList";
import { changedFiles, countsOf } from "../diff/files";
import { runAddress } from "../run/address";
import { dateTime, duration, money, plural, shortId, tokens } from "../ui/format";
import { StateMark } from "../ui/StateMark/StateMark";
import { safeText } from "../ui/safeText";
import { differingNames } from "./align";
import css from "./Compare.module.css";
import type { ComparedRun } from "./useSide";

/** Outcome, cost, inputs, definition and changes of two runs; what differs is marked. */
export function Overview({ a, b }: { a: ComparedRun; b: ComparedRun }) {
  const inputs = differingNames(a.why.inputs, b.why.inputs);
  const names = [...new Set([...Object.keys(a.why.inputs), ...Object.keys(b.why.inputs)])];
  const definition = definitionDifference(a, b);
  const rows: [string, ReactNode, ReactNode, boolean][] = [
    pair("Run", a, b, (run) => (
      <Link href={runAddress(run.why.run.runId)}>
        {safeText(run.why.run.workflowName)} <code>{shortId(run.why.run.runId)}</code>
      </Link>
    )),
    pair("Began", a, b, (run) => dateTime(run.why.run.startedAt)),
    row(
      "Outcome",
      a,
      b,
      (run) => run.why.run.status,
      (run) => (
        <>
          <StateMark state={run.why.run.status} /> {safeText(run.why.ending?.error ?? "")}
        </>
      ),
    ),
    pair("Took", a, b, (run) => duration(run.why.run.durationMs)),
    row(
      "Cost",
      a,
      b,
      (run) => String(run.why.run.costUsd),
      (run) => (
        <span className="number">
          {money(run.why.run.costUsd, run.why.run.costIsComplete)},{" "}
          {tokens(run.why.run.tokens.input + run.why.run.tokens.output)} tokens
        </span>
      ),
    ),
    row(
      "Steps",
      a,
      b,
      (run) => String(run.steps.length),
      (run) => String(run.steps.length),
    ),
    ["Definition", definition[0], definition[1], definition[2]],
    ...names.map((name): [string, ReactNode, ReactNode, boolean] => [
      `Input ${name}`,
      <code key="a">{inputText(a, name)}</code>,
      <code key="b">{inputText(b, name)}</code>,
      inputs.includes(name),
    ]),
    row("Changes", a, b, fileNames, (run) => {
      const files = changedFiles(run.changes);
      return (
        <>
          <Link href={runAddress(run.why.run.runId, {}, "/changes")}>
            {plural(files.length, "file")}
          </Link>{" "}
          <Counts {...countsOf(files)} />
        </>
      );
    }),
  ];
  return (
    <div className={css.scroll}>
      <table className={css.table}>
        <thead>
          <tr>
            <td />
            <th scope="col">A</th>
            <th scope="col">B</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, left, right, differs]) => (
            <tr key={name} data-differs={differs || undefined}>
              <th scope="row">
                {safeText(name)}
                {differs && <span className={css.mark}> ≠</span>}
              </th>
              <td>{left}</td>
              <td>{right}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

type Row = [string, ReactNode, ReactNode, boolean];

function pair(
  name: string,
  a: ComparedRun,
  b: ComparedRun,
  show: (run: ComparedRun) => ReactNode,
): Row {
  return [name, show(a), show(b), false];
}

function row(
  name: string,
  a: ComparedRun,
  b: ComparedRun,
  key: (run: ComparedRun) => string,
  show: (run: ComparedRun) => ReactNode,
): Row {
  return [name, show(a), show(b), key(a) !== key(b)];
}

function inputText(run: ComparedRun, name: string): string {
  const value = run.why.inputs[name];
  const text = typeof value === "string" ? value : JSON.stringify(value ?? null);
  return safeText(text.length > 200 ? `${text.slice(0, 200)}…` : text);
}

function fileNames(run: ComparedRun): string {
  return changedFiles(run.changes)
    .map((file) => `${file.path} ${file.insertions} ${file.deletions}`)
    .join("\n");
}

/** The versions of the workflow, and which of its nodes differ. */
function definitionDifference(a: ComparedRun, b: ComparedRun): [ReactNode, ReactNode, boolean] {
  const nodes = (run: ComparedRun) => (Array.isArray(run.workflow.nodes) ? run.workflow.nodes : []);
  const text = (run: ComparedRun) => JSON.stringify([nodes(run), run.workflow.edges]);
  const shown = (run: ComparedRun) => `version ${run.workflow.version ?? 1}`;
  if (text(a) === text(b)) return [shown(a), `${shown(b)}, the same`, false];
  const ids = (run: ComparedRun) =>
    new Map(
      nodes(run).map((node) => [
        String((node as { id?: string } | null)?.id ?? ""),
        JSON.stringify(node),
      ]),
    );
  const [inA, inB] = [ids(a), ids(b)];
  const changed = [...new Set([...inA.keys(), ...inB.keys()])].filter(
    (id) => inA.get(id) !== inB.get(id),
  );
  return [shown(a), `${shown(b)}; differs: ${safeText(changed.join(", ") || "edges")}`, true];
}
