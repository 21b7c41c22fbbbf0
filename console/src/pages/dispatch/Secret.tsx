import { useId, useRef, useState } from "react";
import type { TriggerView } from "../../api/generated";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import { complain, say } from "../../ui/Toast/toast";
import css from "./Dispatch.module.css";
import { change } from "./triggers";

/** The secret that the sender signs with. It is sent, and then it is nowhere on the page. */
export function Secret({ trigger }: { trigger: TriggerView }) {
  const id = useId();
  // Not a controlled input: React would copy the value into an attribute.
  const input = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<unknown>(null);
  const send = () => {
    const field = input.current;
    if (!field) return;
    const secret = field.value;
    field.value = "";
    setError(null);
    change(trigger, { secret })
      .then(() => say("The secret is set."))
      .catch(setError);
  };
  return (
    <>
      <form
        className={css.line}
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <label htmlFor={id}>Signing secret</label>
        <span className="quiet">({trigger.secretSet ? "set" : "not set"})</span>
        <input ref={input} id={id} type="password" autoComplete="off" required />
        <Button type="submit">Set secret</Button>
      </form>
      <label className={css.check}>
        <input
          type="checkbox"
          checked={trigger.verifyOptional}
          onChange={(event) =>
            void change(trigger, { verifyOptional: event.target.checked }).catch(complain)
          }
        />
        Take unsigned requests
      </label>
      {!trigger.secretSet && !trigger.verifyOptional && (
        <p className="quiet">Without a secret it refuses every request.</p>
      )}
      {error !== null && <Failure error={error} />}
    </>
  );
}
