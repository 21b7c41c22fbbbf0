import { memo } from "react";
import { clock, duration } from "../ui/format";
import { Scroll } from "../ui/Scroll/Scroll";
import { safeText } from "../ui/safeText";
import css from "./Log.module.css";
import type { Row } from "./rows";

interface Props {
  row: Row;
  /** The row's text and result; rows grow in place, so these say whether it changed. */
  text: string;
  result: string;
  isOpen: boolean;
  isFound: boolean;
  isLinked: boolean;
  withTime: boolean;
  withPath: boolean;
  onToggle: (row: Row) => void;
  onLink: (row: Row) => void;
}

/** One row of a log. What agents print is shown as text, with its hidden characters written out. */
export const LogRow = memo(function LogRow(props: Props) {
  const { row, isOpen, isFound, isLinked, withTime, withPath, onToggle, onLink } = props;
  return (
    <div
      className={css.row}
      data-kind={row.kind}
      data-tone={row.event?.tone}
      data-found={isFound || undefined}
      data-linked={isLinked || undefined}
    >
      <button
        type="button"
        className={css.number}
        aria-label={`Link to line ${row.id}`}
        title={`${clock(row.time)} ${row.path}`}
        onClick={() => onLink(row)}
      >
        {withTime && !row.isPart ? clock(row.time) : "·"}
      </button>
      {withPath && <span className={css.path}>{row.isPart ? "" : safeText(row.path)}</span>}
      {row.tool ? (
        <ToolCall row={row} isOpen={isOpen} onToggle={onToggle} />
      ) : (
        <span className={css.text}>
          {row.event && <span className={css.sign}>{row.event.sign}</span>}
          {row.kind === "stderr" && <span className="visually-hidden">stderr: </span>}
          {safeText(props.text)}
        </span>
      )}
    </div>
  );
});

function ToolCall({ row, isOpen, onToggle }: Pick<Props, "row" | "isOpen" | "onToggle">) {
  const tool = row.tool;
  if (!tool) return null;
  const [first = ""] = row.text.split("\n", 1);
  const more = row.text.length > first.length ? row.text : "";
  return (
    <div className={css.tool} data-failed={tool.failed || undefined}>
      <button
        type="button"
        className={css.call}
        aria-expanded={isOpen}
        onClick={() => onToggle(row)}
      >
        <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span>
        <strong>{safeText(tool.name || "tool")}</strong>
        <span className={css.summary}>{safeText(first)}</span>
        <span className={css.took}>
          {tool.failed && "✕ failed "}
          {tool.isDone ? duration(Math.max(0, tool.endedAt - row.time)) : "…"}
        </span>
      </button>
      {isOpen && (
        <Scroll className={css.result}>
          <pre>
            {more && `${safeText(more)}\n`}
            {safeText(tool.result) || (tool.isDone ? "(no result)" : "(still running)")}
          </pre>
        </Scroll>
      )}
    </div>
  );
}
