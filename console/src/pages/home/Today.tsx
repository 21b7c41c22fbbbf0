import { Link } from "wouter";
import { useApi } from "../../api/query";
import { money, plural, tokens } from "../../ui/format";
import { Meter } from "../../ui/Meter/Meter";
import { Panel } from "../../ui/Panel/Panel";
import css from "./Home.module.css";

const WINDOWS = {
  day: "a day",
  week: "a week",
  month: "a month",
  process: "while the server runs",
};

/** What today's runs came to, and what they cost. The server's days are those of UTC. */
export function Today() {
  const since = new Date().toISOString().slice(0, 10);
  const often = { refetchInterval: 15_000 };
  const costs = useApi("GET /api/costs", { query: { by: "day", since } }, often);
  const stats = useApi("GET /api/runs/stats", { query: { by: "day", since } }, often);
  const today = stats.data?.rows.find((row) => row.key === since);
  const total = costs.data?.total;
  const limit = costs.data?.limit;
  return (
    <Panel title="Today" side={<Link href="/costs">Costs</Link>}>
      <div className={css.today}>
        <p className={css.big}>{money(total?.costUsd ?? 0, total?.complete ?? true)}</p>
        {limit && (
          <Meter
            value={limit.spentUsd}
            of={limit.limitUsd}
            label={`${money(limit.spentUsd)} of ${money(limit.limitUsd)} ${WINDOWS[limit.window]}`}
          />
        )}
        <p>
          {today?.succeeded ?? 0} succeeded, {today?.failed ?? 0} failed
          {today?.cancelled ? `, ${today.cancelled} cancelled` : ""}
        </p>
        {total && total.calls > 0 && (
          <p className="quiet">
            {plural(total.calls, "call")}, {tokens(total.tokens.input + total.tokens.output)} tokens
            {total.unknown > 0 && `, ${total.unknown} without a price`}
          </p>
        )}
      </div>
    </Panel>
  );
}
