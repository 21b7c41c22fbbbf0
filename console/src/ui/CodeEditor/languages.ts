/** The grammars, each loaded when a text of its language is first shown. */
import type { Extension } from "@codemirror/state";
import type { Language } from "./CodeEditor";

const GRAMMARS: Partial<Record<Language, () => Promise<Extension>>> = {
  json: async () => (await import("@codemirror/lang-json")).json(),
  yaml: async () => (await import("@codemirror/lang-yaml")).yaml(),
  python: async () => (await import("@codemirror/lang-python")).python(),
  typescript: async () =>
    (await import("@codemirror/lang-javascript")).javascript({ typescript: true }),
};

export const loadGrammar = async (language: Language): Promise<Extension> =>
  (await GRAMMARS[language]?.()) ?? [];

/** Whether lines are numbered and never wrapped. */
export const isCode = (language: Language): boolean => language in GRAMMARS;
