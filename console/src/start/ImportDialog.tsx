import { useEffect, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { ApiFailure, call } from "../api/client";
import type { WorkflowDetail } from "../api/generated";
import { useApi } from "../api/query";
import { Button } from "../ui/Button/Button";
import { CodeEditor, type EditorProblem } from "../ui/CodeEditor/CodeEditor";
import { Dialog } from "../ui/Dialog/Dialog";
import { Failure } from "../ui/Failure/Failure";
import { Field } from "../ui/Field/Field";
import css from "./ImportDialog.module.css";
import { ImportSummary } from "./ImportSummary";
import { freeId, wrongId } from "./ids";
import { saveNew } from "./workflows";

interface Props {
  /** A file that was dropped or chosen already. */
  file?: File;
  onClose: () => void;
}

const MAX_BYTES = 1 << 20;
const IDLE_MS = 400;

/** Imports a workflow: a JSON file or a loop file, chosen, dropped or pasted. */
export function ImportDialog({ file, onClose }: Props) {
  const [, go] = useLocation();
  const picker = useRef<HTMLInputElement>(null);
  const taken = useApi("GET /api/workflows").data?.workflows.map(({ id }) => id) ?? [];
  const [name, setName] = useState("");
  const [text, setText] = useState("");
  const [found, setFound] = useState<WorkflowDetail | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [typedId, setTypedId] = useState<string | null>(null);

  const take = async (chosen: File) => {
    setTypedId(null);
    if (chosen.size > MAX_BYTES) {
      setError(new Error(`${chosen.name} is larger than 1 MiB; that is no workflow.`));
      return;
    }
    setName(chosen.name);
    setText(await chosen.text());
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: a dropped file is read once
  useEffect(() => {
    if (file) void take(file);
  }, [file]);

  useEffect(() => {
    setFound(null);
    setError(null);
    if (text.trim() === "") return;
    const wait = setTimeout(() => {
      const body = { name: name || (isJson(text) ? "pasted.json" : "pasted.loop.yaml"), text };
      call("POST /api/workflows/read", { body }).then(setFound).catch(setError);
    }, IDLE_MS);
    return () => clearTimeout(wait);
  }, [name, text]);

  const problems = useMemo<EditorProblem[]>(() => {
    const all = error instanceof ApiFailure ? error.problems : (found?.problems ?? []);
    return all.flatMap(({ line, message, severity }) =>
      line ? [{ line, message, severity }] : [],
    );
  }, [error, found]);
  const own = typeof found?.workflow.id === "string" ? found.workflow.id : "workflow";
  const id = typedId ?? freeId(own, taken);
  const wrong = found ? wrongId(id, taken) : "";
  const save = () =>
    saveNew({ ...found?.workflow, id, name: found?.workflow.name ?? id })
      .then((page) => {
        onClose();
        go(page);
      })
      .catch(setError);
  const language = name.endsWith(".json") || isJson(text) ? "json" : "yaml";
  return (
    <Dialog
      wide
      title="Import a workflow"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" disabled={!found || wrong !== ""} onClick={() => void save()}>
            Import
          </Button>
        </>
      }
    >
      <div className={css.choose}>
        <Button onClick={() => picker.current?.click()}>Choose a file…</Button>
        <span className="quiet">{name || "or drop one on the page, or paste its text"}</span>
        <input
          ref={picker}
          type="file"
          hidden
          aria-label="Workflow file"
          accept=".json,.yaml,.yml"
          onChange={(event) => {
            const chosen = event.target.files?.[0];
            event.target.value = "";
            if (chosen) void take(chosen);
          }}
        />
      </div>
      <CodeEditor
        language={language}
        label="Workflow text"
        value={text}
        onChange={setText}
        problems={problems}
        minLines={8}
        maxLines={20}
        placeholder="JSON, or a loop file in YAML"
      />
      {found && <ImportSummary found={found} />}
      {found && (
        <Field label="Id" hint="The name of its file." problem={wrong || undefined}>
          {(control) => (
            <input
              {...control}
              autoComplete="off"
              spellCheck={false}
              value={id}
              onChange={(event) => setTypedId(event.target.value)}
            />
          )}
        </Field>
      )}
      {error !== null && <Failure error={error} />}
    </Dialog>
  );
}

function isJson(text: string): boolean {
  return /^\s*[{[]/.test(text);
}
