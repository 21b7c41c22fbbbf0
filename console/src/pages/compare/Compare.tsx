import { useMemo } from "react";
import { useParams } from "wouter";
import { Page } from "../../app/shell/Page";
import { align, firstDivergence } from "../../compare/align";
import { Overview } from "../../compare/Overview";
import { StepTable } from "../../compare/StepTable";
import { StepValues } from "../../compare/StepValues";
import { type ComparedRun, useSide } from "../../compare/useSide";
import { useQuery } from "../../run/address";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import { shortId } from "../../ui/format";
import { Panel } from "../../ui/Panel/Panel";
import { safeText } from "../../ui/safeText";
import css from "./Compare.module.css";

/** Two runs side by side: where they first differ, and in what else. */
export default function Compare() {
  const { a = "", b = "" } = useParams<{ a: string; b: string }>();
  const sideA = useSide(a);
  const sideB = useSide(b);
  const error = sideA.error ?? sideB.error;
  return (
    <Page crumbs={["Runs", `Compare ${shortId(a)} with ${shortId(b)}`]}>
      {error && <Failure error={error} />}
      {!error && !(sideA.data && sideB.data) && <p className="quiet">reading both runs…</p>}
      {sideA.data && sideB.data && <Both a={sideA.data} b={sideB.data} />}
    </Page>
  );
}

function Both({ a, b }: { a: ComparedRun; b: ComparedRun }) {
  const [query, set] = useQuery();
  const rows = useMemo(() => align(a, b), [a, b]);
  const first = useMemo(() => firstDivergence(rows), [rows]);
  const selected = query.get("step") ?? first?.path ?? "";
  const row = rows.find((each) => each.path === selected);
  return (
    <>
      <p role="status" aria-label="First divergence" className={css.first}>
        {first ? (
          <>
            First divergence: <code>{safeText(first.path)}</code> {safeText(first.difference)}
            <Button onClick={() => set({ step: first.path })}>Show</Button>
          </>
        ) : (
          "The steps of both runs are the same."
        )}
      </p>
      <Overview a={a} b={b} />
      <Panel title="Steps">
        <StepTable
          rows={rows}
          first={first?.path ?? ""}
          selected={selected}
          onSelect={(step) => set({ step })}
        />
      </Panel>
      {row && (
        <Panel title={safeText(row.path)}>
          <StepValues row={row} a={a} b={b} />
        </Panel>
      )}
    </>
  );
}
