import { useEffect, useRef } from "react";
import { useApi } from "../../api/query";
import { safeText } from "../../ui/safeText";
import css from "./Dev.module.css";

const LINES = 1_000;

/** The last lines of a process; it stays at its end unless somebody has scrolled up. */
export function ProcessLog({ name }: { name: string }) {
  const end = useRef<HTMLDivElement>(null);
  const read = useApi(
    "GET /api/dev/{name}/log",
    { path: { name }, query: { lines: LINES } },
    { refetchInterval: 2_000 },
  );
  const text = read.data?.lines.join("\n") ?? "";
  useEffect(() => {
    const pane = end.current?.parentElement?.closest("section");
    if (!text || !pane) return;
    const below = pane.scrollHeight - pane.scrollTop - pane.clientHeight;
    if (below < 200 || pane.scrollTop === 0) pane.scrollTop = pane.scrollHeight;
  }, [text]);
  return (
    <div>
      {read.error && !read.data && <p className="quiet">{name} has not written anything.</p>}
      <pre className={css.text}>{safeText(text)}</pre>
      <div ref={end} />
    </div>
  );
}
