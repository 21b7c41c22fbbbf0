import { useEffect, useRef, useState } from "react";
import { ApiFailure } from "../api/client";
import { arranged } from "../model/layout";
import type { Workflow } from "../model/workflow";
import { Button } from "../ui/Button/Button";
import { CodeEditor, type EditorProblem } from "../ui/CodeEditor/CodeEditor";
import { useDocument, useEditor } from "./editor";
import css from "./TextView.module.css";
import { documentOf, type Language, TextProblem, textOf } from "./textDocument";

interface Wrong {
  message: string;
  lines: EditorProblem[];
}

const ROOM = { width: 1_000, height: 700 };
const PAUSE_MS: Record<Language, number> = { json: 0, yaml: 400 };

/** The document as JSON or YAML. What is typed shows on the graph; what cannot be read does not. */
export function TextView() {
  const editor = useEditor();
  const workflow = useDocument();
  const [language, setLanguage] = useState<Language>("json");
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState<Wrong | null>(null);
  // The document that the text stands for; null while the text cannot be read.
  const shown = useRef<Workflow | null>(null);
  const typed = useRef(false);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  useEffect(() => {
    if (typed.current || shown.current === workflow) return;
    let isOver = false;
    textOf(workflow, language).then(
      (made) => {
        if (isOver) return;
        shown.current = workflow;
        setText(made);
        setWrong(null);
      },
      (error: unknown) => !isOver && setWrong(asWrong(error)),
    );
    return () => {
      isOver = true;
    };
  }, [workflow, language]);
  useEffect(() => () => clearTimeout(timer.current), []);

  const read = async (now: string) => {
    try {
      const made = await documentOf(now, language, editor.getState().history.present);
      const placed = arranged(made, editor.getState().kinds, ROOM);
      typed.current = false;
      shown.current = placed;
      setWrong(null);
      editor.run({ do: "replace", workflow: placed }, "text");
    } catch (error) {
      setWrong(asWrong(error));
    }
  };
  const onChange = (now: string) => {
    setText(now);
    typed.current = true;
    clearTimeout(timer.current);
    if (PAUSE_MS[language]) timer.current = setTimeout(() => void read(now), PAUSE_MS[language]);
    else void read(now);
  };
  const reset = (to: Language) => {
    clearTimeout(timer.current);
    typed.current = false;
    shown.current = null;
    setWrong(null);
    setLanguage(to);
    void textOf(workflow, to).then(
      (made) => {
        shown.current = workflow;
        setText(made);
      },
      (error: unknown) => {
        setText("");
        setWrong(asWrong(error));
      },
    );
  };
  return (
    <section aria-label="Text" className={css.text}>
      <header className={css.header}>
        <label>
          <span className="visually-hidden">Language</span>
          <select value={language} onChange={(event) => reset(event.target.value as Language)}>
            <option value="json">JSON</option>
            <option value="yaml">YAML</option>
          </select>
        </label>
        {wrong && (
          <p role="alert" className={css.wrong}>
            ▲ {wrong.message} The graph is as it was.
          </p>
        )}
        {wrong && <Button onClick={() => reset(language)}>Discard text</Button>}
      </header>
      <CodeEditor
        language={language}
        label="Workflow text"
        value={text}
        onChange={onChange}
        problems={wrong?.lines ?? []}
        history="own"
        fill
      />
    </section>
  );
}

function asWrong(error: unknown): Wrong {
  if (error instanceof TextProblem) {
    const { message, line } = error;
    return {
      message: line ? `Line ${line}: ${message}.` : message,
      lines: line ? [{ line, message }] : [],
    };
  }
  if (error instanceof ApiFailure) {
    const lines = error.problems.flatMap(({ line, message }) => (line ? [{ line, message }] : []));
    const first = error.problems[0];
    const place = first ? ` ${first.place}: ${first.message}` : "";
    return { message: `${error.message}.${place}`, lines };
  }
  return { message: String(error), lines: [] };
}
