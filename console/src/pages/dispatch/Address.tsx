import { useState } from "react";
import { useLocation } from "wouter";
import { call } from "../../api/client";
import type { TriggerView } from "../../api/generated";
import { refresh } from "../../api/query";
import { Button } from "../../ui/Button/Button";
import { Confirm } from "../../ui/Confirm/Confirm";
import { Copy } from "../../ui/Copy/Copy";
import { complain, say } from "../../ui/Toast/toast";
import css from "./Dispatch.module.css";
import { dispatchAddress, showList } from "./triggers";

interface Props {
  trigger: TriggerView;
  /** Its id is about to change. */
  onLeaving: (isLeaving: boolean) => void;
}

/** Where requests go. The address is a credential, so it is copied and not shown. */
export function Address({ trigger, onLeaving }: Props) {
  const [, go] = useLocation();
  const [asking, setAsking] = useState(false);
  const renew = () => {
    onLeaving(true);
    call("POST /api/triggers/{trigger_id}/regenerate", { path: { trigger_id: trigger.id } })
      .then((answer) => {
        say("The old address is dead. Give the new one to the sender.");
        showList((all) => all.map((each) => (each.id === trigger.id ? answer.trigger : each)));
        go(dispatchAddress(answer.trigger));
        refresh("GET /api/triggers");
      })
      .catch((error) => {
        onLeaving(false);
        complain(error);
      });
  };
  return (
    <div className={css.line}>
      <code>/api/webhook/••••••••</code>
      <Copy text={`${location.origin}/api/webhook/${trigger.id}`} />
      <Button onClick={() => setAsking(true)}>New address</Button>
      {asking && (
        <Confirm
          title="Give it another address?"
          action="Replace"
          onClose={() => setAsking(false)}
          onConfirm={renew}
        >
          Requests to the present address are refused from then on.
        </Confirm>
      )}
    </div>
  );
}
