import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useRef, useState } from "react";
import { call } from "../api/client";
import type { RunMessage } from "../api/feed/messages";
import { Button } from "../ui/Button/Button";
import { Empty } from "../ui/Empty/Empty";
import { Failure } from "../ui/Failure/Failure";
import { clock, plural } from "../ui/format";
import { Scroll } from "../ui/Scroll/Scroll";
import { safeText } from "../ui/safeText";
import css from "./Events.module.css";
import { END } from "./journal";

interface Props {
  runId: string;
  step: string;
  /** How many events the stream has told; a new one means there is more to read. */
  told: number;
}

interface Read {
  events: RunMessage[];
  previous: number | null;
}

const PAGE = 500;

/** The rows of the run's journal, as they are; without what steps printed. */
export function Events({ runId, step, told }: Props) {
  const [read, setRead] = useState<Read | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const box = useRef<HTMLDivElement>(null);
  const load = useCallback(
    (query: { before?: number; after?: number }) =>
      call("GET /api/runs/{run_id}/log", {
        path: { run_id: runId },
        query: { ...query, step, output: false, limit: PAGE },
      }),
    [runId, step],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: `told` says that there is more
  useEffect(() => {
    let isGone = false;
    load({ before: END })
      .then((page) => {
        if (isGone) return;
        setError(null);
        setRead((before) => joined(before, page.events, page.previous ?? null));
      })
      .catch((failure: unknown) => !isGone && setError(failure));
    return () => {
      isGone = true;
    };
  }, [load, told]);
  const events = read?.events ?? [];
  const virtual = useVirtualizer({
    count: events.length,
    getScrollElement: () => box.current,
    estimateSize: () => 20,
    overscan: 10,
  });
  const earlier = async () => {
    if (!read?.previous) return;
    const page = await load({ before: read.previous });
    setRead({ events: [...page.events, ...read.events], previous: page.previous ?? null });
  };
  if (error) return <Failure error={error} />;
  return (
    <div className={css.events}>
      <p className={css.bar}>
        <span>{plural(events.length, "event")}</span>
        {read?.previous != null && (
          <Button look="plain" onClick={() => void earlier().catch(setError)}>
            Earlier events
          </Button>
        )}
      </p>
      {read && events.length === 0 && <Empty>No events.</Empty>}
      <Scroll ref={box} className={css.box}>
        <div className={css.all} style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((place) => {
            const event = events[place.index];
            if (!event) return null;
            const key = `${event.seq} ${event.type}`;
            const toggle = () => {
              const next = new Set(open);
              if (!next.delete(key)) next.add(key);
              setOpen(next);
            };
            return (
              <div
                key={`${place.index} ${key}`}
                ref={virtual.measureElement}
                data-index={place.index}
                className={css.place}
                style={{ transform: `translateY(${place.start}px)` }}
              >
                <EventRow event={event} isOpen={open.has(key)} onToggle={toggle} />
              </div>
            );
          })}
        </div>
      </Scroll>
    </div>
  );
}

const COMMON = new Set(["type", "runId", "seq", "time", "correlationId", "stepPath"]);

function EventRow(props: { event: RunMessage; isOpen: boolean; onToggle: () => void }) {
  const { event, isOpen, onToggle } = props;
  const own = Object.fromEntries(Object.entries(event).filter(([name]) => !COMMON.has(name)));
  return (
    <div>
      <button type="button" className={css.row} aria-expanded={isOpen} onClick={onToggle}>
        <span className={css.seq}>{event.seq}</span>
        <span className={css.time}>{clock(event.time)}</span>
        <span className={css.type}>{event.type}</span>
        <span className={css.path}>{safeText(event.stepPath ?? "")}</span>
        <span className={css.rest}>{safeText(JSON.stringify(own).slice(0, 300))}</span>
      </button>
      {isOpen && (
        <Scroll className={css.whole}>
          <pre>{safeText(JSON.stringify(event, null, 2))}</pre>
        </Scroll>
      )}
    </div>
  );
}

/** Put the newest page behind what is known; a gap between them is filled from the page's side. */
function joined(before: Read | null, page: RunMessage[], previous: number | null): Read {
  const first = page[0]?.seq ?? 0;
  const known = before?.events.filter((event) => event.seq < first) ?? [];
  const touches = before?.events.some((event) => event.seq >= first) ?? false;
  if (!before || !touches) return { events: page, previous };
  return { events: [...known, ...page], previous: before.previous };
}
