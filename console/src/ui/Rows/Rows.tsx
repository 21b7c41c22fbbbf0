import type { CSSProperties, ReactNode } from "react";
import css from "./Rows.module.css";

interface RowsProps {
  label: string;
  /** Widths of the columns, as in `grid-template-columns`. */
  columns: string;
  children: ReactNode;
}

/** A table without rules between columns; on a phone each row becomes two lines. */
export function Rows({ label, columns, children }: RowsProps) {
  return (
    <div
      role="table"
      aria-label={label}
      className={css.rows}
      style={{ gridTemplateColumns: columns }}
    >
      {children}
    </div>
  );
}

interface RowProps {
  /** What a screen reader calls it: `deploy 77b0, failed`. */
  name: string;
  current?: boolean;
  style?: CSSProperties;
  index?: number;
  children: ReactNode;
}

export function Row({ name, current, style, index, children }: RowProps) {
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: rows are read; what can be used is inside
    <div
      role="row"
      aria-label={name}
      aria-current={current || undefined}
      aria-rowindex={index}
      className={css.row}
      style={style}
    >
      {children}
    </div>
  );
}

/** The cells that share a line on a phone. */
export function Line({ children }: { children: ReactNode }) {
  return <div className={css.line}>{children}</div>;
}

interface CellProps {
  children?: ReactNode;
  /** Stands at the right end. */
  end?: boolean;
  /** Breaks into lines instead of being cut. */
  wrap?: boolean;
  /** Takes the space that is left, on a phone. */
  grow?: boolean;
  title?: string;
}

export function Cell({ children, end, wrap, grow, title }: CellProps) {
  return (
    <div
      role="cell"
      className={css.cell}
      data-end={end || undefined}
      data-wrap={wrap || undefined}
      data-grow={grow || undefined}
      title={title}
    >
      {children}
    </div>
  );
}
