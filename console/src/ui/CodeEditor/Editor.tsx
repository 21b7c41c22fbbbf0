/** CodeMirror in a shadow root.
 *
 * In a document CodeMirror adds `<style>` elements, which the content security policy refuses. In a
 * shadow root it uses constructed style sheets, which are allowed.
 */
import { autocompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching, indentOnInput } from "@codemirror/language";
import { type Diagnostic, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension, Transaction } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightSpecialChars,
  keymap,
  lineNumbers,
  placeholder as placeholderText,
} from "@codemirror/view";
import { type CSSProperties, useEffect, useRef } from "react";
import type { CodeEditorProps, EditorProblem } from "./CodeEditor";
import css from "./CodeEditor.module.css";
import { smallestChange } from "./change";
import { isCode, loadGrammar } from "./languages";
import { completeFrom, markReferences } from "./references";
import { highlighting, theme } from "./theme";

/** Enter does nothing, and a line break in pasted text becomes a space. */
const ONE_LINE = [
  EditorState.transactionFilter.of((change) =>
    change.annotation(Transaction.remote) || change.newDoc.lines <= change.startState.doc.lines
      ? change
      : [],
  ),
  EditorView.clipboardInputFilter.of((text) => text.replace(/\s*\n\s*/g, " ")),
];
/** The height of lines, with the padding around them. */
const height = (lines: number) => `calc(var(--code-line) * ${lines} + 8px)`;

/** Text typed over a selection. The browser would keep the style of what it replaces by an inline
 * style, which the content security policy refuses. */
const TYPED_OVER = EditorView.domEventHandlers({
  beforeinput: (event, view) => {
    const isOver = event.inputType === "insertText" && !view.state.selection.main.empty;
    if (!isOver || event.data === null || view.composing || view.state.readOnly) return false;
    event.preventDefault();
    view.dispatch(view.state.replaceSelection(event.data), {
      userEvent: "input.type",
      scrollIntoView: true,
    });
    return true;
  },
});

export default function Editor(props: CodeEditorProps) {
  const { value, problems, language, label, description, readOnly, placeholder } = props;
  const { singleLine, minLines = singleLine ? 1 : 3, maxLines = 24, fill } = props;
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const typed = useRef<string[]>([]);
  const parts = useRef({ grammar: new Compartment(), surface: new Compartment() });

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open", delegatesFocus: true });
    const { grammar, surface } = parts.current;
    const made = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: latest.current.value,
        extensions: [
          surface.of([]),
          grammar.of([]),
          theme,
          highlighting,
          markReferences,
          highlightSpecialChars(),
          drawSelection(),
          TYPED_OVER,
          indentOnInput(),
          highlightSelectionMatches(),
          search({ top: true }),
          latest.current.singleLine ? ONE_LINE : [],
          latest.current.history === "page" ? [] : [history(), keymap.of(historyKeymap)],
          autocompletion({
            icons: false,
            interactionDelay: 0,
            override: [completeFrom(() => latest.current.completions)],
          }),
          // Tab is not bound: it leaves the editor, as it leaves every other field.
          keymap.of([...completionKeymap, ...searchKeymap, ...defaultKeymap]),
          EditorView.updateListener.of((update) => {
            const isTyped = update.transactions.some(
              (each) => each.docChanged && each.annotation(Transaction.remote) !== true,
            );
            if (!isTyped) return;
            const text = update.state.doc.toString();
            typed.current.push(text);
            latest.current.onChange?.(text);
          }),
        ],
      }),
    });
    view.current = made;
    return () => {
      made.destroy();
      view.current = null;
    };
  }, []);

  useEffect(() => {
    let isGone = false;
    void loadGrammar(language).then((grammar) => {
      if (!isGone) view.current?.dispatch({ effects: parts.current.grammar.reconfigure(grammar) });
    });
    return () => {
      isGone = true;
    };
  }, [language]);

  useEffect(() => {
    const extensions: Extension[] = [
      EditorView.contentAttributes.of({
        "aria-label": label,
        ...(description ? { "aria-description": description } : {}),
        ...(readOnly ? { "aria-readonly": "true" } : {}),
        tabindex: "0",
        spellcheck: isCode(language) ? "false" : "true",
      }),
      isCode(language) ? [lineNumbers(), bracketMatching()] : EditorView.lineWrapping,
      EditorState.readOnly.of(Boolean(readOnly)),
      EditorView.editable.of(!readOnly),
      placeholder ? placeholderText(placeholder) : [],
    ];
    view.current?.dispatch({ effects: parts.current.surface.reconfigure(extensions) });
  }, [label, description, readOnly, language, placeholder]);

  useEffect(() => {
    // A text that was typed here comes back later; meanwhile more may have been typed.
    const echo = typed.current.indexOf(value);
    typed.current = typed.current.slice(echo + 1);
    if (echo >= 0 && typed.current.length > 0) return;
    typed.current = [];
    const shown = view.current;
    const changes = shown && smallestChange(shown.state.doc.toString(), value);
    if (!changes) return;
    shown.dispatch({
      changes,
      annotations: [Transaction.remote.of(true), Transaction.addToHistory.of(false)],
    });
  }, [value]);

  useEffect(() => {
    const shown = view.current;
    if (!shown) return;
    const found = (problems ?? []).map((each) => diagnostic(each, shown.state));
    shown.dispatch(setDiagnostics(shown.state, found));
  }, [problems]);

  const sizes = fill
    ? undefined
    : ({ "--editor-min": height(minLines), "--editor-max": height(maxLines) } as CSSProperties);
  return (
    <div
      ref={host}
      className={`${css.host} ${fill ? css.fill : ""}`}
      style={sizes}
      data-typing
      data-readonly={readOnly || undefined}
    />
  );
}

function diagnostic(problem: EditorProblem, state: EditorState): Diagnostic {
  const { message, severity = "error" } = problem;
  if ("line" in problem) {
    const line = state.doc.line(Math.min(Math.max(1, problem.line), state.doc.lines));
    return { from: line.from, to: line.to, message, severity };
  }
  const from = Math.min(problem.from, state.doc.length);
  return { from, to: Math.min(Math.max(problem.to, from), state.doc.length), message, severity };
}
