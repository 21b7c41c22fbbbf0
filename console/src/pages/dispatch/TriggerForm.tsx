import { useRef, useState } from "react";
import { call } from "../../api/client";
import type { PluginView, TriggerView } from "../../api/generated";
import { refresh, useApi } from "../../api/query";
import { Button } from "../../ui/Button/Button";
import { Dialog } from "../../ui/Dialog/Dialog";
import { Failure } from "../../ui/Failure/Failure";
import { Field } from "../../ui/Field/Field";
import css from "./Dispatch.module.css";
import { content, type Draft, draftOf, newDraft } from "./draft";
import { InputFields } from "./InputFields";
import { OptionFields } from "./OptionFields";
import { RequestFields } from "./RequestFields";
import { change, type JsonObject, optionFields, optionsField } from "./triggers";

interface Props {
  /** The one that is changed; without it a new one is made. */
  trigger?: TriggerView;
  plugins: PluginView[];
  onClose: () => void;
  onSaved: (trigger: TriggerView) => void;
}

/** Make or change a trigger of any kind that the server knows. */
export function TriggerForm(props: Props) {
  const catalog = useApi("GET /api/catalog", {}, { staleTime: 60_000 });
  const schema = catalog.data?.schemas.trigger;
  return schema ? <OpenForm {...props} schema={schema} /> : null;
}

function OpenForm({ trigger, plugins, onClose, onSaved, schema }: Props & { schema: JsonObject }) {
  const kinds = kindsOf(schema);
  const workflows = useApi("GET /api/workflows");
  const secret = useRef<HTMLInputElement>(null);
  const [draft, setDraft] = useState<Draft>(() =>
    trigger ? draftOf(trigger, schema) : newDraft(kinds[0] ?? "webhook"),
  );
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const set = (changes: Partial<Draft>) => setDraft((before) => ({ ...before, ...changes }));
  const options = optionsField(schema, draft.kind);
  const save = async () => {
    const given = secret.current?.value ?? "";
    if (secret.current) secret.current.value = "";
    setBusy(true);
    setError(null);
    try {
      const body = content(draft, schema, given);
      const saved = trigger
        ? await change(trigger, { eventType: null, cwd: null, ...body })
        : (await call("POST /api/triggers", { body })).trigger;
      refresh("GET /api/triggers");
      onSaved(saved);
    } catch (failed) {
      setError(failed);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={trigger ? "Edit trigger" : "New trigger"}
      wide
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" type="submit" form="trigger-form" disabled={busy}>
            {trigger ? "Save" : "Create"}
          </Button>
        </>
      }
    >
      <form
        id="trigger-form"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <div className={css.pair}>
          <Field label="Name">
            {(control) => (
              <input
                {...control}
                className={css.wide}
                value={draft.name}
                onChange={(event) => set({ name: event.target.value })}
              />
            )}
          </Field>
          <Field label="Workflow">
            {(control) => (
              <select
                {...control}
                required
                value={draft.workflowId}
                onChange={(event) => set({ workflowId: event.target.value })}
              >
                <option value="">choose…</option>
                {workflows.data?.workflows.map((each) => (
                  <option key={each.id} value={each.id}>
                    {each.name}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <Field label="Kind" hint={String(propertyOf(schema, "kind").description ?? "")}>
            {(control) => (
              <select
                {...control}
                disabled={trigger !== undefined}
                value={draft.kind}
                onChange={(event) => set({ kind: event.target.value, options: {} })}
              >
                {kinds.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>
            )}
          </Field>
          <Field
            label="Working directory"
            hint="An absolute path; empty: where the server started."
          >
            {(control) => (
              <input
                {...control}
                className={css.wide}
                value={draft.cwd}
                onChange={(event) => set({ cwd: event.target.value })}
              />
            )}
          </Field>
        </div>
        {options ? (
          <fieldset className={css.group}>
            <legend>{String(propertyOf(schema, options).title ?? options)}</legend>
            <OptionFields
              fields={optionFields(schema, options)}
              values={draft.options}
              onChange={(values) => set({ options: values })}
            />
          </fieldset>
        ) : (
          <RequestFields
            draft={draft}
            plugins={plugins}
            secret={secret}
            isNew={trigger === undefined}
            onChange={set}
          />
        )}
        <InputFields draft={draft} onChange={set} />
        <label className={css.check}>
          <input
            type="checkbox"
            checked={draft.enabled}
            onChange={(event) => set({ enabled: event.target.checked })}
          />
          Enabled
        </label>
        {error !== null && <Failure error={error} />}
      </form>
    </Dialog>
  );
}

function propertyOf(schema: JsonObject, name: string): JsonObject {
  return ((schema.properties ?? {}) as { [key: string]: JsonObject })[name] ?? {};
}

function kindsOf(schema: JsonObject): string[] {
  const kinds = propertyOf(schema, "kind").enum;
  return Array.isArray(kinds) ? kinds.map(String) : [];
}
