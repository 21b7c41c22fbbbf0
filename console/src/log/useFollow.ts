import {
  type RefObject,
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import type { Row } from "./rows";

const NEAR_END = 24;

/**
 * Keep the end of a log in view until the reader scrolls up; then count what is new. Rows that are
 * added above do not move what is read.
 */
export function useFollow(
  box: RefObject<HTMLDivElement | null>,
  rows: readonly Row[],
  size: number,
  version: number,
) {
  const [pausedAt, setPausedAt] = useState<string | null>(null);
  const lastTop = useRef(0);
  const newest = useRef("");
  const first = useRef({ id: "", size: 0 });
  newest.current = rows.at(-1)?.id ?? "";
  const isPaused = pausedAt !== null;

  useLayoutEffect(() => {
    const element = box.current;
    if (!element || version < 0) return;
    const id = rows[0]?.id ?? "";
    if (!isPaused) {
      element.scrollTop = element.scrollHeight;
    } else if (id !== first.current.id && first.current.id) {
      element.scrollTop += size - first.current.size;
    }
    lastTop.current = element.scrollTop;
    first.current = { id, size };
  }, [box, rows, size, version, isPaused]);

  // What stands above the log may grow, and then the log becomes shorter.
  useEffect(() => {
    const element = box.current;
    if (!element || isPaused) return;
    const watch = new ResizeObserver(() => {
      element.scrollTop = element.scrollHeight;
      lastTop.current = element.scrollTop;
    });
    watch.observe(element);
    return () => watch.disconnect();
  }, [box, isPaused]);

  const pause = useCallback(() => setPausedAt((at) => at ?? newest.current), []);
  const follow = useCallback(() => setPausedAt(null), []);
  const scrolled = useCallback(() => {
    const element = box.current;
    if (!element) return;
    const left = element.scrollHeight - element.scrollTop - element.clientHeight;
    if (left < NEAR_END) follow();
    else if (element.scrollTop < lastTop.current - 2) pause();
    lastTop.current = element.scrollTop;
  }, [box, pause, follow]);

  // Rows are added in place: nothing but their number says that there are more.
  const count = rows.length;
  const newRows = useMemo(() => {
    if (pausedAt === null) return 0;
    const at = rows.findLastIndex((row) => row.id === pausedAt);
    return at < 0 ? 0 : count - 1 - at;
  }, [rows, count, pausedAt]);
  return useMemo(
    () => ({ isPaused, newRows, pause, follow, scrolled }),
    [isPaused, newRows, pause, follow, scrolled],
  );
}
