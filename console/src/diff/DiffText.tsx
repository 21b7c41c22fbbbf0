import { memo, useMemo } from "react";
import { Scroll } from "../ui/Scroll/Scroll";
import { safeText } from "../ui/safeText";
import css from "./Diff.module.css";
import { type DiffLine, type Hunk, readFilePatch, sideBySide } from "./patch";

const SIGNS = { add: "+", delete: "−", same: " ", note: "\\" };

/** The patch of one file: as one column, or before and after side by side. */
export const DiffText = memo(function DiffText({ text, split }: { text: string; split: boolean }) {
  const file = useMemo(() => readFilePatch(text), [text]);
  return (
    <Scroll className={css.text}>
      {file.notes.map((note) => (
        <p key={note} className={css.note}>
          {safeText(note)}
        </p>
      ))}
      {file.hunks.map((hunk) => (
        <div key={hunk.header}>
          <p className={css.hunkHeader}>{safeText(hunk.header)}</p>
          {split ? <Split hunk={hunk} /> : <Unified hunk={hunk} />}
        </div>
      ))}
    </Scroll>
  );
});

function Unified({ hunk }: { hunk: Hunk }) {
  return (
    <table className={css.table}>
      <tbody>
        {hunk.lines.map((line) => (
          <tr key={`${line.kind}${line.before}.${line.after}`} data-kind={line.kind}>
            <td className={css.number}>{line.before || ""}</td>
            <td className={css.number}>{line.after || ""}</td>
            <td className={css.code}>
              <span className={css.sign}>{SIGNS[line.kind]}</span>
              {safeText(line.text)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Split({ hunk }: { hunk: Hunk }) {
  return (
    <table className={css.table} data-split>
      <tbody>
        {sideBySide(hunk).map(({ left, right }) => (
          <tr key={`${left?.before ?? "-"}.${right?.after ?? "-"}`}>
            <Half line={left} number={left?.before} />
            <Half line={right} number={right?.after} />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Half({ line, number }: { line: DiffLine | null; number?: number }) {
  return (
    <>
      <td className={css.number}>{number || ""}</td>
      <td className={css.code} data-kind={line?.kind ?? "none"}>
        {line && <span className={css.sign}>{SIGNS[line.kind]}</span>}
        {line && safeText(line.text)}
      </td>
    </>
  );
}
