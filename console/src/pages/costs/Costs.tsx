import { Link } from "wouter";
import type { Cost } from "../../api/generated";
import { useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { Choice, Filters } from "../../ui/Filters/Filters";
import { money, plural, shortId, tokens } from "../../ui/format";
import { Meter } from "../../ui/Meter/Meter";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { useAddressFilters } from "../../ui/useAddressFilters";
import { CostChart } from "./CostChart";
import css from "./Costs.module.css";

const GROUPS: [string, string][] = [
  ["day", "day"],
  ["workflow", "workflow"],
  ["provider", "provider"],
  ["run", "run"],
];
const SINCE: [string, string][] = [
  ["", "ever"],
  ["1", "today"],
  ["7", "7 days"],
  ["28", "28 days"],
];
const WINDOWS = {
  day: "a day",
  week: "a week",
  month: "a month",
  process: "while the server runs",
};

/** What agents and judges have cost. What has no price is counted, and never taken as free. */
export default function Costs() {
  const [filters, setFilter] = useAddressFilters("by", "since");
  const by = GROUPS.some(([each]) => each === filters.by) ? filters.by : "day";
  const since = firstDay(filters.since);
  const report = useApi(
    "GET /api/costs",
    { query: { by, since } },
    { refetchInterval: 15_000, placeholderData: (before) => before },
  );
  const data = report.data;
  const rows = data ? (data.by === "day" ? [...data.rows].reverse() : byCost(data.rows)) : [];
  const most = Math.max(0, ...rows.map((row) => row.costUsd));
  return (
    <Page crumbs={["Costs"]}>
      {report.error && !data && (
        <Failure error={report.error} retry={() => void report.refetch()} />
      )}
      {data && (
        <div className={css.top}>
          <div>
            <p className={css.total}>
              {money(data.total.costUsd)}
              {!data.total.complete && <span className={css.or}> or more</span>}
            </p>
            <p className="quiet">
              {plural(data.total.calls, "call")}
              {data.total.unknown > 0 && `, ${data.total.unknown} without a price`}
              {data.total.open > 0 && `, ${data.total.open} running`}
            </p>
          </div>
          {data.limit && (
            <Meter
              value={data.limit.spentUsd}
              of={data.limit.limitUsd}
              label={`${money(data.limit.spentUsd)} of ${money(data.limit.limitUsd)} ${WINDOWS[data.limit.window]}`}
            />
          )}
          <CostChart />
        </div>
      )}
      <Panel title={`By ${by}`}>
        <div className={css.tools}>
          <Filters count={since ? 1 : 0}>
            <Choice
              label="By"
              value={by}
              onChoose={(value) => setFilter("by", value)}
              options={GROUPS}
            />
            <Choice
              label="Since"
              value={filters.since}
              onChoose={(value) => setFilter("since", value)}
              options={SINCE}
            />
          </Filters>
        </div>
        {data && rows.length === 0 && <Empty>No agent and no judge has been called.</Empty>}
        {rows.length > 0 && (
          <Rows
            label={`Costs by ${by}`}
            columns="minmax(140px, 280px) minmax(80px, 1fr) 90px 90px 80px minmax(0, auto)"
          >
            {rows.map((row) => (
              <CostRow key={row.key} row={row} by={data?.by ?? by} most={most} />
            ))}
          </Rows>
        )}
      </Panel>
    </Page>
  );
}

function CostRow({ row, by, most }: { row: Cost; by: string; most: number }) {
  const name = by === "run" ? shortId(row.key) : row.key || "–";
  return (
    <Row name={`${name}, ${money(row.costUsd, row.complete)}`}>
      <Line>
        <Cell grow>{linked(row.key, name, by)}</Cell>
        <Cell grow>
          <div className={css.share} aria-hidden="true">
            <div style={{ width: `${most ? (row.costUsd / most) * 100 : 0}%` }} />
          </div>
        </Cell>
        <Cell end>
          <span className="number">{money(row.costUsd, row.complete)}</span>
        </Cell>
      </Line>
      <Line>
        <Cell end>
          <span className="number">{tokens(row.tokens.input + row.tokens.output)} tok</span>
        </Cell>
        <Cell end>
          <span className="number quiet">{plural(row.calls, "call")}</span>
        </Cell>
        <Cell>{row.unknown > 0 && `${row.unknown} without a price`}</Cell>
      </Line>
    </Row>
  );
}

function linked(key: string, name: string, by: string) {
  if (!key) return name;
  if (by === "run") return <Link href={`/r/${key}`}>{name}</Link>;
  if (by === "workflow") {
    return <Link href={`/runs?workflow=${encodeURIComponent(key)}`}>{name}</Link>;
  }
  return by === "day" ? <span className="number">{name}</span> : name;
}

function byCost(rows: Cost[]): Cost[] {
  return [...rows].sort((a, b) => b.costUsd - a.costUsd || b.calls - a.calls);
}

/** Return the first of so many days up to today, as the server counts them: in UTC. */
function firstDay(days: string): string {
  const count = Number(days);
  if (!(count > 0)) return "";
  return new Date(Date.now() - (count - 1) * 86_400_000).toISOString().slice(0, 10);
}
