/** An editor for code and long text. CodeMirror is a chunk of its own, loaded when first shown. */
import { lazy, Suspense } from "react";
import css from "./CodeEditor.module.css";

export type Language = "json" | "yaml" | "python" | "typescript" | "template" | "text";

export interface Completion {
  label: string;
  /** Stands beside the label, such as the last value. */
  detail?: string;
  /** Shown for the chosen completion. */
  info?: string;
}

/** Something wrong, at a range of the text or on a line (the first is 1). */
export type EditorProblem = { message: string; severity?: "error" | "warning" } & (
  | { from: number; to: number }
  | { line: number }
);

export interface CodeEditorProps {
  language: Language;
  value: string;
  onChange?: (value: string) => void;
  /** The name for screen readers. */
  label: string;
  /** More about it for screen readers: a hint, and what is wrong. */
  description?: string;
  placeholder?: string;
  /** What may follow the text before the cursor. After `{{` the reference is replaced, else the word. */
  completions?: (before: string) => Completion[];
  problems?: EditorProblem[];
  readOnly?: boolean;
  /** A field of one line. */
  singleLine?: boolean;
  minLines?: number;
  maxLines?: number;
  /** `page`: Ctrl+Z is left to the page, whose history holds the text. `own`: the editor undoes. */
  history?: "own" | "page";
  /** Fill the height of the surrounding flex column. */
  fill?: boolean;
}

const load = () => import("./Editor");

/** Without the server the editor cannot be loaded any more; a plain field still takes the text. */
const Editor = lazy(() => load().catch(() => ({ default: Plain })));

/** Load the editor before it is needed. */
export function preloadEditor(): void {
  load().catch(() => undefined);
}

export function CodeEditor(props: CodeEditorProps) {
  return (
    <Suspense fallback={<Loading {...props} />}>
      <Editor {...props} />
    </Suspense>
  );
}

function Loading({ value, singleLine, minLines = singleLine ? 1 : 3, fill }: CodeEditorProps) {
  return (
    <pre
      className={`${css.host} ${css.loading} ${fill ? css.fill : ""}`}
      style={{ minHeight: `calc(var(--code-line) * ${minLines} + 10px)` }}
      aria-busy="true"
    >
      {value.slice(0, 5_000)}
    </pre>
  );
}

function Plain({ value, onChange, label, readOnly, minLines = 3 }: CodeEditorProps) {
  return (
    <textarea
      aria-label={label}
      className="mono"
      rows={minLines}
      value={value}
      readOnly={readOnly}
      onChange={(event) => onChange?.(event.target.value)}
    />
  );
}
