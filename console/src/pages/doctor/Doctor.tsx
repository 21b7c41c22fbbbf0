import type { Check } from "../../api/generated";
import { useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import { plural } from "../../ui/format";
import { Pairs } from "../../ui/Pairs/Pairs";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { StateMark } from "../../ui/StateMark/StateMark";
import { WithCode } from "../../ui/WithCode/WithCode";
import { Attack } from "./Attack";
import css from "./Doctor.module.css";

const STATES = { ok: "succeeded", warn: "waiting", error: "failed" };
const WORDS = { ok: "ok", warn: "warning", error: "error" };
const ORDER = ["error", "warn", "ok"];

/** What this machine can confine, what should be changed, and the proof by attack. */
export default function Doctor() {
  const report = useApi("GET /api/doctor", {}, { staleTime: 60_000, refetchOnWindowFocus: false });
  const data = report.data;
  return (
    <Page crumbs={["Doctor"]}>
      {report.error && !data && (
        <Failure error={report.error} retry={() => void report.refetch()} />
      )}
      {report.isPending && <p role="status">Trying each level of isolation…</p>}
      {data && (
        <>
          <Panel
            title="Isolation"
            side={
              <Button disabled={report.isFetching} onClick={() => void report.refetch()}>
                {report.isFetching ? "Looking…" : "Look again"}
              </Button>
            }
          >
            <div className={css.levels}>
              {data.levels.map((level) => (
                <div key={level.level} className={css.level}>
                  <p>
                    <StateMark
                      state={level.holds ? "succeeded" : "failed"}
                      word={`${level.level} ${level.holds ? "holds" : "does not hold"}`}
                    />
                  </p>
                  {level.reason && <p className="quiet">{level.reason}</p>}
                </div>
              ))}
            </div>
            <p className={css.versions}>{data.isolation}</p>
          </Panel>
          <Checks checks={data.checks} />
          <Attack levels={data.levels} />
          <Panel title="Versions">
            <Pairs pairs={Object.entries(data.versions)} />
          </Panel>
        </>
      )}
    </Page>
  );
}

/** What to change comes first. */
function Checks({ checks }: { checks: Check[] }) {
  const sorted = [...checks].sort((a, b) => ORDER.indexOf(a.status) - ORDER.indexOf(b.status));
  const wrong = checks.filter((each) => each.status !== "ok").length;
  return (
    <Panel title={wrong ? `${plural(wrong, "thing")} to change` : "Checks"}>
      <Rows label="Checks" columns="minmax(90px, auto) minmax(140px, auto) minmax(0, 1fr)">
        {sorted.map((check) => (
          <Row key={`${check.id}${check.message}`} name={`${check.id}, ${WORDS[check.status]}`}>
            <Line>
              <Cell>
                <StateMark state={STATES[check.status]} word={WORDS[check.status]} />
              </Cell>
              <Cell grow>
                <code>{check.id}</code>
              </Cell>
            </Line>
            <Line>
              <Cell wrap grow>
                <p>
                  <WithCode text={check.message} />
                </p>
                {check.fix && (
                  <p className={css.fix}>
                    → <WithCode text={check.fix} />
                  </p>
                )}
              </Cell>
            </Line>
          </Row>
        ))}
      </Rows>
    </Panel>
  );
}
