import { useState } from "react";
import { useLocation } from "wouter";
import { call } from "../api/client";
import { useApi } from "../api/query";
import { Button } from "../ui/Button/Button";
import { Dialog } from "../ui/Dialog/Dialog";
import { Failure } from "../ui/Failure/Failure";
import { Field } from "../ui/Field/Field";
import { freeId, idOf, wrongId } from "./ids";
import { saveNew } from "./workflows";

/** Makes a workflow that can run as it is: an agent works until a command succeeds. */
export function NewWorkflow({ onClose }: { onClose: () => void }) {
  const [, go] = useLocation();
  const taken = useApi("GET /api/workflows").data?.workflows.map(({ id }) => id) ?? [];
  const { data: programs } = useApi("GET /api/providers/status");
  const [name, setName] = useState("Until green");
  const [typedId, setTypedId] = useState<string | null>(null);
  const [agent, setAgent] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const id = typedId ?? freeId(idOf(name), taken);
  const wrong = wrongId(id, taken);
  const agents = (programs?.providers ?? []).filter((each) => each.installed !== undefined);
  const create = async () => {
    setBusy(true);
    setError(null);
    try {
      const { workflow } = await call("POST /api/workflows/starter", { body: { id, agent } });
      go(await saveNew({ ...workflow, name: name.trim() || id }));
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Dialog
      title="New workflow"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            look="primary"
            type="submit"
            form="new-workflow"
            disabled={isBusy || wrong !== ""}
          >
            Create
          </Button>
        </>
      }
    >
      <form
        id="new-workflow"
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <p className="quiet">
          An agent works in a copy of your repository until a command succeeds. You can change
          everything afterwards.
        </p>
        <br />
        <Field label="Name">
          {(control) => (
            <input
              {...control}
              autoComplete="off"
              value={name}
              onChange={(event) => setName(event.target.value)}
            />
          )}
        </Field>
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
        <Field label="Agent">
          {(control) => (
            <select {...control} value={agent} onChange={(event) => setAgent(event.target.value)}>
              <option value="">one that is installed</option>
              {agents.map((each) => (
                <option key={each.id} value={each.id}>
                  {each.label}
                  {each.installed ? "" : " (not installed)"}
                </option>
              ))}
            </select>
          )}
        </Field>
        {error !== null && <Failure error={error} />}
      </form>
    </Dialog>
  );
}
