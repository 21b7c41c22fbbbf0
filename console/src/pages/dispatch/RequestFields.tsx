import type { RefObject } from "react";
import type { PluginView, Predicate } from "../../api/generated";
import { Button } from "../../ui/Button/Button";
import { Field } from "../../ui/Field/Field";
import css from "./Dispatch.module.css";
import type { Draft } from "./draft";

const OPERATORS = ["==", "!=", "contains", "matches"];

interface Props {
  draft: Draft;
  plugins: PluginView[];
  secret: RefObject<HTMLInputElement | null>;
  isNew: boolean;
  onChange: (changes: Partial<Draft>) => void;
}

/** Which requests fire it: the sender, the event, conditions, and the secret they are signed with. */
export function RequestFields({ draft, plugins, secret, isNew, onChange }: Props) {
  const plugin = plugins.find((each) => each.id === draft.pluginId);
  const setMatch = (at: number, changes: Partial<Predicate>) =>
    onChange({
      match: draft.match.map((each, index) => (index === at ? { ...each, ...changes } : each)),
    });
  return (
    <fieldset className={css.group}>
      <legend>Request</legend>
      <div className={css.pair}>
        <Field label="Sender">
          {(control) => (
            <select
              {...control}
              value={draft.pluginId}
              onChange={(event) => onChange({ pluginId: event.target.value, eventType: "" })}
            >
              {plugins.map((each) => (
                <option key={each.id} value={each.id}>
                  {each.displayName}
                </option>
              ))}
            </select>
          )}
        </Field>
        {plugin && plugin.events.length > 0 && (
          <Field label="Event">
            {(control) => (
              <select
                {...control}
                value={draft.eventType}
                onChange={(event) => onChange({ eventType: event.target.value })}
              >
                <option value="">any</option>
                {plugin.events.map((each) => (
                  <option key={each.type} value={each.type}>
                    {each.displayName}
                  </option>
                ))}
              </select>
            )}
          </Field>
        )}
      </div>
      {isNew && plugin?.signature && (
        <Field
          label="Signing secret"
          hint={`What the sender signs with, in the header ${plugin.signature.header}.`}
        >
          {(control) => (
            <input
              {...control}
              ref={secret}
              type="password"
              autoComplete="off"
              className={css.wide}
            />
          )}
        </Field>
      )}
      {draft.match.map((each, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a condition has no other identity
        <div key={at} className={css.predicate}>
          <input
            aria-label={`Condition ${at + 1}, left`}
            placeholder="{{body.action}}"
            value={each.lhs}
            onChange={(event) => setMatch(at, { lhs: event.target.value })}
          />
          <select
            aria-label={`Condition ${at + 1}, operator`}
            value={each.op}
            onChange={(event) => setMatch(at, { op: event.target.value })}
          >
            {OPERATORS.map((op) => (
              <option key={op}>{op}</option>
            ))}
          </select>
          <input
            aria-label={`Condition ${at + 1}, right`}
            value={each.rhs}
            onChange={(event) => setMatch(at, { rhs: event.target.value })}
          />
          <Button
            aria-label={`Remove condition ${at + 1}`}
            onClick={() => onChange({ match: draft.match.filter((_, index) => index !== at) })}
          >
            ✕
          </Button>
        </div>
      ))}
      <Button onClick={() => onChange({ match: [...draft.match, { lhs: "", op: "==", rhs: "" }] })}>
        Add condition
      </Button>
    </fieldset>
  );
}
