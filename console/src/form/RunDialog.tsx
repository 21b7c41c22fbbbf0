import { useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import type { ApiFailure } from "../api/client";
import { useApi } from "../api/query";
import { Button } from "../ui/Button/Button";
import { Dialog } from "../ui/Dialog/Dialog";
import { Failure } from "../ui/Failure/Failure";
import { safeText } from "../ui/safeText";
import { filledInputs, inputsOf, missingInputs, schemaOf } from "./runInputs";
import { SchemaForm } from "./SchemaForm";
import type { Schema, Values } from "./schema";
import { newKey, startRun } from "./startRun";
import { asText } from "./values";

interface Props {
  workflowId: string;
  /** What stands in the fields first, such as the inputs of an earlier run. */
  initial?: { inputs?: Values; cwd?: string };
  onClose: () => void;
}

const OPTIONS: Schema = {
  type: "object",
  properties: {
    cwd: {
      type: "string",
      title: "Working directory",
      description: "Where the run begins; the server's own directory if empty.",
      widget: "directory",
    },
  },
};

/** Asks for the inputs of a run, starts it, and opens its page. */
export function RunDialog({ workflowId, initial, onClose }: Props) {
  const [, go] = useLocation();
  const { data, error } = useApi("GET /api/workflows/{workflow_id}", {
    path: { workflow_id: workflowId },
  });
  const inputs = useMemo(() => (data ? inputsOf(data.workflow) : []), [data]);
  const schema = useMemo(() => schemaOf(inputs), [inputs]);
  const [given, setGiven] = useState<Values>(initial?.inputs ?? {});
  const [options, setOptions] = useState<Values>(initial?.cwd ? { cwd: initial.cwd } : {});
  const [isBusy, setBusy] = useState(false);
  const [refused, setRefused] = useState<ApiFailure | null>(null);
  const sent = useRef({ content: "", key: "" });
  const known = Object.entries(given).filter(([name]) => inputs.some((each) => each.name === name));
  const body = {
    workflowId,
    inputs: filledInputs(inputs, Object.fromEntries(known)),
    cwd: asText(options.cwd),
  };
  const missing = missingInputs(inputs, given);
  const start = () => {
    setBusy(true);
    setRefused(null);
    // A second attempt is the same request; another content is another one.
    const content = JSON.stringify(body);
    if (sent.current.content !== content) sent.current = { content, key: newKey() };
    startRun(body, sent.current.key)
      .then((page) => {
        onClose();
        go(page);
      })
      .catch((failure: ApiFailure) => {
        setRefused(failure);
        setBusy(false);
      });
  };
  const name = asText(data?.workflow.name) || workflowId;
  return (
    <Dialog
      title={`Run ${safeText(name)}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            look="primary"
            disabled={!data || isBusy || missing.length > 0}
            title={missing.length ? `Missing: ${missing.join(", ")}` : undefined}
            onClick={start}
          >
            {isBusy ? "Starting…" : "Run"}
          </Button>
        </>
      }
    >
      {error && <Failure error={error} />}
      {data && inputs.length === 0 && <p className="quiet">This workflow takes no inputs.</p>}
      {data && <SchemaForm path="inputs" schema={schema} values={given} onChange={setGiven} />}
      <SchemaForm path="run" schema={OPTIONS} values={options} onChange={setOptions} />
      {refused && <Failure error={refused} />}
    </Dialog>
  );
}
