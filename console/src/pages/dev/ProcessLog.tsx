import { useEffect, useRef, useState } from "react";
import type { DevOutput } from "../../api/feed/messages";
import { devLog, subscribe } from "../../api/feed/port";
import { safeText } from "../../ui/safeText";
import css from "./Dev.module.css";

const KEPT_CHARACTERS = 400_000;

/** The last lines of a process; it stays at its end unless somebody has scrolled up. */
export function ProcessLog({ name }: { name: string }) {
  const end = useRef<HTMLDivElement>(null);
  const text = useOutput(name);
  useEffect(() => {
    const pane = end.current?.parentElement?.closest("section");
    if (!text || !pane) return;
    const below = pane.scrollHeight - pane.scrollTop - pane.clientHeight;
    if (below < 200 || pane.scrollTop === 0) pane.scrollTop = pane.scrollHeight;
  }, [text]);
  return (
    <div>
      {text === "" && <p className="quiet">{name} has not written anything.</p>}
      <pre className={css.text}>{safeText(text ?? "")}</pre>
      <div ref={end} />
    </div>
  );
}

/** What a process wrote, as the server streams it; null until the server was heard. */
function useOutput(name: string): string | null {
  const [text, setText] = useState<string | null>(null);
  useEffect(
    () =>
      subscribe(devLog(name), 0, (messages, { restarted }) => {
        const parts = messages.filter((each): each is DevOutput => each.type === "dev_log");
        setText((before) => {
          let now = restarted ? "" : (before ?? "");
          for (const part of parts) now = part.isWhole ? part.text : now + part.text;
          return now.slice(-KEPT_CHARACTERS);
        });
      }),
    [name],
  );
  return text;
}
