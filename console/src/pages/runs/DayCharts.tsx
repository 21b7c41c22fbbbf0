import { useApi } from "../../api/query";
import { Bars } from "../../ui/Bars/Bars";
import { daysBetween } from "../../ui/Bars/heights";
import { money } from "../../ui/format";
import css from "./Runs.module.css";

const DAYS = 28;

/** How the runs of the last weeks ended, and what they cost, day by day. */
export function DayCharts({ workflow }: { workflow: string }) {
  const today = new Date();
  const days = daysBetween(new Date(today.getTime() - (DAYS - 1) * 86_400_000), today);
  const stats = useApi(
    "GET /api/runs/stats",
    { query: { by: "day", since: days[0], ...(workflow ? { workflowId: workflow } : {}) } },
    { refetchInterval: 30_000 },
  );
  if (!stats.data?.rows.length) return null;
  const found = new Map(stats.data.rows.map((row) => [row.key, row]));
  const total = { ok: 0, bad: 0, off: 0, usd: 0 };
  const rows = days.map((day) => {
    const row = found.get(day);
    total.ok += row?.succeeded ?? 0;
    total.bad += row?.failed ?? 0;
    total.off += row?.cancelled ?? 0;
    total.usd += row?.costUsd ?? 0;
    return {
      day,
      ok: row?.succeeded ?? 0,
      bad: row?.failed ?? 0,
      off: row?.cancelled ?? 0,
      usd: row?.costUsd ?? 0,
    };
  });
  return (
    <div className={css.charts}>
      <Bars
        caption="outcomes/day"
        summary={`Outcomes per day, ${DAYS} days: ${total.ok} succeeded, ${total.bad} failed, ${total.off} cancelled`}
        bars={rows.map(({ day, ok, bad, off }) => ({
          key: day,
          title: `${day}: ${ok} succeeded, ${bad} failed, ${off} cancelled`,
          parts: [
            { tone: "ok", value: ok },
            { tone: "off", value: off },
            { tone: "bad", value: bad },
          ],
        }))}
      />
      <Bars
        caption="cost/day"
        summary={`Cost per day, ${DAYS} days: ${money(total.usd)}`}
        bars={rows.map(({ day, usd }) => ({
          key: day,
          title: `${day}: ${money(usd)}`,
          parts: [{ tone: "ink", value: usd }],
        }))}
      />
    </div>
  );
}
