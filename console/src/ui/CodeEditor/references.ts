/** `{{references}}` in a text: marked, and completed from what the page says exists. */
import type { CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import {
  Decoration,
  type DecorationSet,
  type EditorView,
  MatchDecorator,
  ViewPlugin,
  type ViewUpdate,
} from "@codemirror/view";
import type { Completion } from "./CodeEditor";

const matcher = new MatchDecorator({
  regexp: /\{\{[^{}\n]*\}\}/g,
  decoration: Decoration.mark({ class: "cm-reference" }),
});

export const markReferences = ViewPlugin.fromClass(
  class {
    decorations: DecorationSet;

    constructor(view: EditorView) {
      this.decorations = matcher.createDeco(view);
    }

    update(update: ViewUpdate) {
      this.decorations = matcher.updateDeco(update, this.decorations);
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

const LOOK_BACK = 2_000;
const OPEN_REFERENCE = /\{\{\s*([^{}\s]*)$/;
const WORD = /[\w$-]*$/;

/** Return the source of completions: `ask` says what may follow the text before the cursor. */
export function completeFrom(ask: () => ((before: string) => Completion[]) | undefined) {
  return (context: CompletionContext): CompletionResult | null => {
    const { pos, state } = context;
    const before = state.sliceDoc(Math.max(0, pos - LOOK_BACK), pos);
    const options = ask()?.(before) ?? [];
    if (!options.length) return null;
    const reference = OPEN_REFERENCE.exec(before);
    const typed = reference ? (reference[1] ?? "") : (WORD.exec(before)?.[0] ?? "");
    if (!reference && !typed && !context.explicit) return null;
    return {
      from: pos - typed.length,
      options: options.map((option) => ({
        ...option,
        type: "variable",
        apply: reference ? insertReference : undefined,
      })),
      validFor: reference ? /^[^{}\s]*$/ : /^[\w$-]*$/,
    };
  };
}

/** Put the reference in, close its braces if they are open, and go behind them. */
function insertReference(
  view: EditorView,
  { label }: { label: string },
  from: number,
  to: number,
): void {
  const after = /^[^{}\s]*\s*\}\}/.exec(view.state.sliceDoc(to, to + 200));
  const end = after ? to + after[0].length : to;
  const insert = `${label}}}`;
  view.dispatch({
    changes: { from, to: end, insert },
    selection: { anchor: from + insert.length },
    userEvent: "input.complete",
  });
}
