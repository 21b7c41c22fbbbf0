import { useEffect, useState } from "react";
import { type ApiFailure, call } from "../../api/client";
import type { AuditEntry } from "../../api/generated";
import { useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { Button } from "../../ui/Button/Button";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { Choice, Filters } from "../../ui/Filters/Filters";
import { Rows } from "../../ui/Rows/Rows";
import { SINCE, startOf } from "../../ui/since";
import { useAddressFilters } from "../../ui/useAddressFilters";
import css from "./Audit.module.css";
import { Entry } from "./Entry";
import { ACTORS, AREAS } from "./filters";
import { Verify } from "./Verify";

const PAGE = 100;

/** Who did what, in a chain of entries that cannot be changed unnoticed. */
export default function Audit() {
  const [filters, setFilter] = useAddressFilters("correlationId", "event", "actor", "run", "since");
  const query = {
    correlationId: filters.correlationId,
    event: filters.event,
    actor: filters.actor,
    run: filters.run,
    since: startOf(filters.since) || null,
    limit: PAGE,
  };
  const key = JSON.stringify(query);
  const newest = useApi("GET /api/audit", { query }, { refetchInterval: 10_000 });
  const [older, setOlder] = useState<{ key: string; entries: AuditEntry[]; next: string | null }>();
  const [error, setError] = useState<ApiFailure | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: other filters, other pages
  useEffect(() => setOlder(undefined), [key]);
  const next = older?.key === key ? older.next : newest.data?.next;
  const first = newest.data?.entries ?? [];
  const known = new Set(first.map(identity));
  const behind = older?.key === key ? older.entries : [];
  const entries = [...first, ...behind.filter((each) => !known.has(identity(each)))];
  const readOlder = () => {
    setError(null);
    call("GET /api/audit", { query: { ...query, before: next } })
      .then((page) =>
        setOlder((before) => ({
          key,
          // What leaves the newest page as others come is kept, so that there is no gap.
          entries: [...(before?.key === key ? before.entries : first), ...page.entries],
          next: page.next,
        })),
      )
      .catch(setError);
  };
  return (
    <Page crumbs={["Audit"]}>
      <div className={css.tools}>
        <div className={css.left}>
          <input
            type="search"
            aria-label="Correlation id"
            placeholder="correlation id"
            className={css.id}
            value={filters.correlationId}
            onChange={(event) => setFilter("correlationId", event.target.value.trim())}
          />
          <Filters
            count={
              [filters.event, filters.actor, filters.since, filters.run].filter(Boolean).length
            }
          >
            <Choice
              label="Event"
              value={filters.event}
              onChoose={(value) => setFilter("event", value)}
              options={withOwn(AREAS, filters.event)}
            />
            <Choice
              label="Actor"
              value={filters.actor}
              onChoose={(value) => setFilter("actor", value)}
              options={withOwn(ACTORS, filters.actor)}
            />
            <Choice
              label="Since"
              value={filters.since}
              onChoose={(value) => setFilter("since", value)}
              options={SINCE}
            />
            {filters.run && (
              <Button onClick={() => setFilter("run", "")}>run {filters.run} ✕</Button>
            )}
          </Filters>
        </div>
        <Verify />
      </div>
      {newest.error && !newest.data && (
        <Failure error={newest.error} retry={() => void newest.refetch()} />
      )}
      {newest.data && newest.data.unreadable > 0 && (
        <p className={css.broken}>{newest.data.unreadable} lines cannot be read.</p>
      )}
      {newest.data && entries.length === 0 && <Empty>No entry is like this.</Empty>}
      {entries.length > 0 && (
        <Rows
          label="Audit log"
          columns="minmax(130px, auto) minmax(150px, auto) minmax(110px, auto) minmax(70px, auto) minmax(60px, auto) minmax(0, 1fr)"
        >
          {entries.map((entry) => (
            <Entry key={identity(entry)} entry={entry} onFilter={setFilter} />
          ))}
        </Rows>
      )}
      {error && <Failure error={error} />}
      {next && (
        <p className={css.more}>
          <Button onClick={readOlder}>Older entries</Button>
        </p>
      )}
    </Page>
  );
}

function identity(entry: AuditEntry): string {
  return entry.hash || `${entry.time}${entry.event}${entry.correlationId}`;
}

/** Return the choices, with the present one if it is none of them. */
function withOwn(options: [string, string][], own: string): [string, string][] {
  return options.some(([value]) => value === own) ? options : [...options, [own, own]];
}
