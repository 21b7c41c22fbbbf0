import { useState } from "react";
import { call } from "../../api/client";
import type { PluginView, TrialResult, TriggerView } from "../../api/generated";
import { refresh } from "../../api/query";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import { Field } from "../../ui/Field/Field";
import { safeText } from "../../ui/safeText";
import css from "./Dispatch.module.css";

interface Props {
  trigger: TriggerView;
  plugin: PluginView | undefined;
}

/** Fire it by hand with a request as its sender would make and sign it. */
export function Trial({ trigger, plugin }: Props) {
  const [payload, setPayload] = useState(() => example(trigger, plugin));
  const [result, setResult] = useState<TrialResult>();
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const test = async () => {
    setBusy(true);
    setError(null);
    setResult(undefined);
    try {
      const body = { payload: JSON.parse(payload || "null") };
      const path = { trigger_id: trigger.id };
      setResult(await call("POST /api/triggers/{trigger_id}/test", { path, body }));
    } catch (failed) {
      setError(failed instanceof SyntaxError ? new Error(`Not JSON: ${failed.message}`) : failed);
    } finally {
      setBusy(false);
      refresh(
        "GET /api/triggers/{trigger_id}/deliveries",
        "GET /api/triggers",
        "GET /api/triggers/queue",
        "GET /api/runs",
      );
    }
  };
  return (
    <>
      <Field label="Payload" hint="The body of the request. A real run starts if it fits.">
        {(control) => (
          <textarea
            {...control}
            className={css.payload}
            spellCheck={false}
            value={payload}
            onChange={(event) => setPayload(event.target.value)}
          />
        )}
      </Field>
      <Button disabled={busy} onClick={() => void test()}>
        Test
      </Button>
      {error !== null && <Failure error={error} />}
      {result && (
        <div className={css.result} role="status" aria-label="Answer">
          <p>
            <span className="number">{result.status}</span> {words(result)}
          </p>
          {result.body && <pre>{safeText(JSON.stringify(result.body, null, 2))}</pre>}
        </div>
      )}
    </>
  );
}

function words(result: TrialResult): string {
  if (result.status === 202) return "queued";
  if (result.status === 204) return `ignored: ${safeText(result.detail) || "it does not match"}`;
  return `refused${result.detail ? `: ${safeText(result.detail)}` : ""}`;
}

function example(trigger: TriggerView, plugin: PluginView | undefined): string {
  const event = plugin?.events.find(
    (each) => !trigger.eventType || each.type === trigger.eventType,
  );
  return JSON.stringify(event?.examplePayload ?? {}, null, 2);
}
