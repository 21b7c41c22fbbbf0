import { useVirtualizer } from "@tanstack/react-virtual";
import {
  useCallback,
  useDeferredValue,
  useEffect,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { useKeys } from "../app/keys";
import type { RunJournal } from "../run/journal";
import { Button } from "../ui/Button/Button";
import { Failure } from "../ui/Failure/Failure";
import { plural } from "../ui/format";
import { Scroll } from "../ui/Scroll/Scroll";
import { complain } from "../ui/Toast/toast";
import { downloadLog } from "./download";
import css from "./Log.module.css";
import { LogBar } from "./LogBar";
import { LogRow } from "./LogRow";
import { LogModel } from "./model";
import { useLogOptions } from "./options";
import type { Row } from "./rows";
import { useFollow } from "./useFollow";

interface Props {
  journal: RunJournal;
  /** The log of this step and what is inside it; empty for the whole run. */
  step: string;
  /** The log has everything up to here; the stream tells the rest. */
  first: number;
  /** The row that the address points at: `120`, or `120.3` for the third row of that message. */
  linked: string;
  onLink: (seq: string) => void;
}

const ROW_HEIGHT = 18;

/** What a run printed, live and from its journal alike. */
export function Log({ journal, step, first, linked, onLink }: Props) {
  const { options, set } = useLogOptions();
  const model = useMemo(() => new LogModel(journal, step, first), [journal, step, first]);
  const version = useSyncExternalStore(model.listen, model.getVersion);
  useEffect(() => model.open(), [model]);
  const [toggled, setToggled] = useState<ReadonlySet<string>>(new Set());
  const [find, setFind] = useState("");
  const [foundAt, setFoundAt] = useState(0);
  const findField = useRef<HTMLInputElement>(null);
  const box = useRef<HTMLDivElement>(null);

  // biome-ignore lint/correctness/useExhaustiveDependencies: rows grow in place; `version` tells it
  const rows = useMemo(
    () => (options.stderrOnly ? model.rows.filter((row) => row.kind === "stderr") : model.rows),
    [model, version, options.stderrOnly],
  );
  const isWhole = step === "";
  const keyOf = useCallback((at: number) => rows[at]?.id ?? at, [rows]);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW_HEIGHT,
    getItemKey: keyOf,
    overscan: 12,
  });
  const size = virtual.getTotalSize();
  const follow = useFollow(box, rows, size, version);

  const searched = useDeferredValue(version);
  // biome-ignore lint/correctness/useExhaustiveDependencies: rows grow in place
  const found = useMemo(() => findRows(rows, find), [rows, find, searched]);
  const goTo = useCallback(
    (at: number) => {
      follow.pause();
      virtual.scrollToIndex(at, { align: "center" });
    },
    [follow, virtual],
  );
  const goToFound = (by: 1 | -1) => {
    if (!found.length) return;
    const next = (foundAt + by + found.length) % found.length;
    setFoundAt(next);
    goTo(found[next] ?? 0);
  };
  const search = (text: string) => {
    setFind(text);
    const matches = findRows(rows, text);
    setFoundAt(Math.max(0, matches.length - 1));
    const last = matches.at(-1);
    if (last !== undefined) goTo(last);
  };

  // Show the row that the address points at, once for each address.
  const shownLink = useRef("");
  useEffect(() => {
    if (!linked || shownLink.current === linked || !model.isLoaded || !version) return;
    shownLink.current = linked;
    void model.loadUntil(Number.parseInt(linked, 10)).then(() => {
      const at = placeOf(model.rows, linked);
      if (at >= 0) requestAnimationFrame(() => goTo(at));
    });
  }, [linked, model, version, goTo]);

  const keys = useMemo(
    () => [
      { keys: "f", what: "follow the log", run: follow.follow },
      { keys: "/", what: "find in log", run: () => findField.current?.focus() },
    ],
    [follow.follow],
  );
  useKeys(keys);
  const toggle = useCallback((row: Row) => {
    setToggled((before) => {
      const after = new Set(before);
      if (!after.delete(row.id)) after.add(row.id);
      return after;
    });
  }, []);
  const link = useCallback(
    (row: Row) => {
      const seq = row.at ? row.id : String(row.seq);
      shownLink.current = seq;
      onLink(seq);
    },
    [onLink],
  );
  const scrolled = () => {
    follow.scrolled();
    if ((box.current?.scrollTop ?? 0) < 200 && model.hasEarlier && model.isLoaded && !model.error) {
      void model.loadEarlier();
    }
  };

  return (
    <section aria-label="Log" className={css.log} data-wrap={options.wrap || undefined}>
      <LogBar
        options={options}
        setOptions={set}
        find={find}
        setFind={search}
        findField={findField}
        found={found.length}
        foundAt={Math.min(foundAt, Math.max(0, found.length - 1))}
        goToFound={goToFound}
        searchEarlier={model.hasEarlier && model.isLoaded ? () => void model.loadAll() : null}
        download={() => void downloadLog(journal.runId, step).catch(complain)}
      />
      {model.error !== null && (
        <Failure error={model.error} retry={() => void model.loadEarlier()} />
      )}
      <Scroll ref={box} className={css.box} onScroll={scrolled} data-rows={rows.length}>
        {model.isLoading && <p className={css.loading}>reading earlier output…</p>}
        <div className={css.all} style={{ height: size }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index];
            if (!row) return null;
            return (
              <div
                key={item.key}
                ref={virtual.measureElement}
                data-index={item.index}
                className={css.place}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <LogRow
                  row={row}
                  text={row.text}
                  result={row.tool ? `${row.tool.isDone}${row.tool.result}` : ""}
                  isOpen={toggled.has(row.id) !== (row.tool?.failed ?? false)}
                  isFound={find !== "" && isMatch(row, find.toLowerCase())}
                  isLinked={row.id === (linked.includes(".") ? linked : `${linked}.0`)}
                  withTime={options.times}
                  withPath={isWhole && row.kind !== "event"}
                  onToggle={toggle}
                  onLink={link}
                />
              </div>
            );
          })}
        </div>
        {model.isLoaded && rows.length === 0 && (
          <p className={css.loading}>{options.stderrOnly ? "No stderr." : "Nothing printed."}</p>
        )}
      </Scroll>
      {follow.isPaused && (
        <div className={css.paused} role="status">
          <span>‖ Paused{follow.newRows > 0 && `, ${plural(follow.newRows, "new line")}`}</span>
          <Button onClick={follow.follow} aria-keyshortcuts="f">
            Follow
          </Button>
        </div>
      )}
    </section>
  );
}

function findRows(rows: readonly Row[], text: string): number[] {
  if (!text) return [];
  const low = text.toLowerCase();
  const found: number[] = [];
  rows.forEach((row, at) => {
    if (isMatch(row, low)) found.push(at);
  });
  return found;
}

function isMatch(row: Row, low: string): boolean {
  return (
    row.text.toLowerCase().includes(low) || (row.tool?.result.toLowerCase().includes(low) ?? false)
  );
}

/** The row that an address names; of a message that is joined with others, the nearest one. */
function placeOf(rows: readonly Row[], linked: string): number {
  const exact = rows.findIndex((row) => row.id === linked);
  if (exact >= 0) return exact;
  const seq = Number.parseInt(linked, 10);
  return rows.findIndex((row) => row.seq >= seq);
}
