/** The editor's look, from the tokens, so that it follows light and dark by itself. */
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const popup = {
  border: "1px solid var(--edge)",
  borderRadius: "var(--radius)",
  background: "var(--surface)",
  color: "var(--ink)",
  boxShadow: "0 8px 32px rgb(0 0 0 / 0.25)",
};

export const theme = EditorView.theme({
  "&": {
    height: "100%",
    maxHeight: "var(--editor-max)",
    color: "var(--ink)",
    background: "transparent",
  },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": {
    fontFamily: "var(--mono)",
    fontSize: "var(--code-size)",
    lineHeight: "var(--code-line)",
  },
  ".cm-content": { padding: "4px 0", caretColor: "var(--ink)" },
  ".cm-content, .cm-gutter": { minHeight: "var(--editor-min)" },
  ".cm-line": { padding: "0 8px" },
  ".cm-placeholder": { color: "var(--ink3)" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--ink)", borderLeftWidth: "2px" },
  ".cm-gutters": {
    background: "transparent",
    color: "var(--ink3)",
    border: "0",
    borderRight: "1px solid var(--line)",
  },
  ".cm-activeLine, .cm-activeLineGutter": { background: "transparent" },
  "&.cm-focused .cm-activeLineGutter": { color: "var(--ink)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground":
    { background: "var(--run-t)" },
  "&.cm-focused .cm-matchingBracket": {
    background: "var(--sunken)",
    outline: "1px solid var(--edge)",
  },
  ".cm-searchMatch": { background: "var(--ask-t)" },
  ".cm-searchMatch-selected": { background: "var(--ask-t)", outline: "1px solid var(--ask)" },
  ".cm-panels": { background: "var(--sunken)", color: "var(--ink)" },
  ".cm-textfield": {
    background: "var(--surface)",
    border: "1px solid var(--edge)",
    color: "var(--ink)",
  },
  ".cm-button": {
    background: "var(--surface)",
    border: "1px solid var(--edge)",
    color: "var(--ink)",
    borderRadius: "var(--radius)",
  },
  ".cm-reference": { background: "var(--sunken)", fontWeight: "600", borderRadius: "2px" },
  ".cm-lintRange": { backgroundImage: "none", paddingBottom: "0" },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--bad)",
    textDecorationSkipInk: "none",
  },
  ".cm-lintRange-warning": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--ask)",
    textDecorationSkipInk: "none",
  },
  ".cm-tooltip": popup,
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "12px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "4px 8px", lineHeight: "18px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": {
    background: "var(--ink)",
    color: "var(--paper)",
  },
  ".cm-completionDetail": { fontStyle: "normal", color: "var(--ink3)" },
  "li[aria-selected] .cm-completionDetail": { color: "inherit" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "600" },
  ".cm-tooltip.cm-completionInfo": {
    ...popup,
    maxWidth: "320px",
    whiteSpace: "pre-wrap",
    overflowWrap: "anywhere",
  },
  ".cm-diagnostic": { borderLeftWidth: "3px", fontFamily: "var(--sans)", fontSize: "13px" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ".cm-diagnostic-warning": { borderLeftColor: "var(--ask)" },
});

// Colour means state, so words are told apart by weight, slant and shade of ink.
export const highlighting = syntaxHighlighting(
  HighlightStyle.define([
    { tag: [tags.keyword, tags.definitionKeyword, tags.controlKeyword], fontWeight: "600" },
    { tag: [tags.propertyName, tags.definition(tags.variableName)], fontWeight: "600" },
    { tag: [tags.comment, tags.meta], color: "var(--ink3)", fontStyle: "italic" },
    { tag: [tags.string, tags.number, tags.bool, tags.null], color: "var(--ink2)" },
    { tag: [tags.punctuation, tags.bracket, tags.separator], color: "var(--ink3)" },
    { tag: tags.invalid, textDecoration: "underline" },
  ]),
);
