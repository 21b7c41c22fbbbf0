import { useApi } from "../../api/query";
import { Bars } from "../../ui/Bars/Bars";
import { daysBetween } from "../../ui/Bars/heights";
import { money } from "../../ui/format";

const DAYS = 28;

/** What each of the last days cost. */
export function CostChart() {
  const today = new Date();
  const days = daysBetween(new Date(today.getTime() - (DAYS - 1) * 86_400_000), today);
  const report = useApi("GET /api/costs", { query: { by: "day", since: days[0] } });
  if (!report.data?.rows.length) return null;
  const found = new Map(report.data.rows.map((row) => [row.key, row]));
  return (
    <Bars
      caption={`${DAYS} days`}
      summary={`Cost per day, ${DAYS} days: ${money(report.data.total.costUsd)}`}
      width={280}
      height={56}
      bars={days.map((day) => {
        const row = found.get(day);
        return {
          key: day,
          title: `${day}: ${money(row?.costUsd ?? 0, row?.complete ?? true)}`,
          parts: [{ tone: "ink", value: row?.costUsd ?? 0 }],
        };
      })}
    />
  );
}
