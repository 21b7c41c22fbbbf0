import { useState } from "react";
import { ApiFailure, call } from "../../api/client";
import type { Finding, LevelReport } from "../../api/generated";
import { refresh, useApi } from "../../api/query";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import { Choice } from "../../ui/Filters/Filters";
import { duration, plural } from "../../ui/format";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { StateMark } from "../../ui/StateMark/StateMark";
import { useNow } from "../../ui/useNow";
import css from "./Doctor.module.css";

/** A hostile child tries everything that a level promises to prevent. */
export function Attack({ levels }: { levels: LevelReport[] }) {
  const holding = levels.filter((each) => each.holds).map((each) => each.level);
  const [chosen, setChosen] = useState("");
  const now = useNow();
  const [error, setError] = useState<unknown>(null);
  const read = useApi(
    "GET /api/doctor/attack",
    {},
    { refetchInterval: ({ state }) => (state.data?.attack?.state === "running" ? 500 : false) },
  );
  const attack = read.data?.attack;
  const isRunning = attack?.state === "running";
  const level = chosen || (holding.find((each) => each !== "host") ?? "host");
  const needsToken = error instanceof ApiFailure && error.code === "token-needed";
  const start = () => {
    setError(null);
    call("POST /api/doctor/attack", { body: { level } })
      .then(() => refresh("GET /api/doctor/attack"))
      .catch(setError);
  };
  const report = attack?.report;
  return (
    <Panel title="Attack">
      <div className={css.tools}>
        <Choice
          label="Level"
          value={level}
          onChoose={setChosen}
          options={holding.map((each): [string, string] => [each, each])}
        />
        <Button disabled={isRunning || holding.length === 0} onClick={start}>
          Attack
        </Button>
        {isRunning && (
          <span role="status">
            <StateMark state="running" word={`attacking ${attack.level}`} />{" "}
            <progress
              className={css.progress}
              aria-label="Attempts made"
              max={attack.attempts}
              value={attack.made}
            />{" "}
            <span className="number">
              {attack.made}/{attack.attempts}
            </span>{" "}
            <span className="number quiet">{duration(now - attack.startedAt)}</span>
          </span>
        )}
        {report && !isRunning && (
          <StateMark
            state={report.holds ? "succeeded" : "failed"}
            word={`${attack.level}: ${report.holds ? "every promise was kept" : "a promise was broken"}, ${plural(report.findings.length, "attempt")}`}
          />
        )}
      </div>
      {needsToken ? (
        <p>
          A server without a token starts no attack. On a terminal:{" "}
          <code>infloop doctor --attack</code>
        </p>
      ) : (
        error !== null && <Failure error={error} />
      )}
      {attack?.error && <Failure error={new Error(attack.error)} />}
      {report?.error && <Failure error={new Error(report.error)} />}
      {report && report.findings.length > 0 && <Findings findings={report.findings} />}
    </Panel>
  );
}

/** Broken promises first. */
function Findings({ findings }: { findings: Finding[] }) {
  const sorted = [...findings].sort((a, b) => Number(a.holds) - Number(b.holds));
  return (
    <Rows
      label="Attempts"
      columns="minmax(100px, auto) minmax(160px, 1fr) minmax(90px, auto) minmax(90px, auto) minmax(0, 1fr)"
    >
      {sorted.map((each) => (
        <Row key={each.attempt} name={`${each.attempt}, ${each.holds ? "kept" : "broken"}`}>
          <Line>
            <Cell>
              <StateMark
                state={each.holds ? "succeeded" : "failed"}
                word={each.holds ? "kept" : "broken"}
              />
            </Cell>
            <Cell wrap grow>
              {each.what}
            </Cell>
          </Line>
          <Line>
            <Cell>promised: {each.promised ? "no" : "nothing"}</Cell>
            <Cell>reached: {each.reached ? "yes" : "no"}</Cell>
            <Cell wrap grow>
              <span className="quiet">{each.detail}</span>
            </Cell>
          </Line>
        </Row>
      ))}
    </Rows>
  );
}
