import { useState } from "react";
import { Link, useLocation } from "wouter";
import { call } from "../../api/client";
import type { PluginView, TriggerView } from "../../api/generated";
import { refresh, useApi } from "../../api/query";
import { Button } from "../../ui/Button/Button";
import { Confirm } from "../../ui/Confirm/Confirm";
import { ago, dateTime } from "../../ui/format";
import { Pairs } from "../../ui/Pairs/Pairs";
import { Panel } from "../../ui/Panel/Panel";
import { safeText } from "../../ui/safeText";
import { complain, say } from "../../ui/Toast/toast";
import { useNow } from "../../ui/useNow";
import { Address } from "./Address";
import { Deliveries } from "./Deliveries";
import css from "./Dispatch.module.css";
import { Secret } from "./Secret";
import { Trial } from "./Trial";
import { TriggerForm } from "./TriggerForm";
import { change, dispatchAddress, showList, takesRequests, waitsFor } from "./triggers";

/** Switch a trigger: the list shows it at once, and takes it back if the server refuses. */
function setEnabled(trigger: TriggerView, enabled: boolean): void {
  showList((all) => all.map((each) => (each.id === trigger.id ? { ...each, enabled } : each)));
  change(trigger, { enabled }).catch((error) => {
    complain(error);
    refresh("GET /api/triggers");
  });
}

interface Props {
  trigger: TriggerView;
  plugins: PluginView[];
}

/** One trigger: what fires it, its address and secret, a trial, and what came. */
export function TriggerDetail({ trigger, plugins }: Props) {
  const [, go] = useLocation();
  const catalog = useApi("GET /api/catalog", {}, { staleTime: 60_000 });
  const now = useNow(5_000);
  const [editing, setEditing] = useState(false);
  const [deleting, setDeleting] = useState(false);
  // Its id is about to be unknown: nothing asks about it until the server has answered.
  const [isLeaving, setLeaving] = useState(false);
  const plugin = plugins.find((each) => each.id === trigger.pluginId);
  const isWebhook = takesRequests(catalog.data?.schemas.trigger, trigger.kind);
  const remove = () => {
    setLeaving(true);
    call("DELETE /api/triggers/{trigger_id}", { path: { trigger_id: trigger.id } })
      .then(() => {
        say("Deleted.");
        showList((all) => all.filter((each) => each.id !== trigger.id));
        go("/dispatch");
        refresh("GET /api/triggers");
      })
      .catch((error) => {
        setLeaving(false);
        complain(error);
      });
  };
  return (
    <>
      <div className={css.head}>
        <h2>{safeText(trigger.name || waitsFor(trigger, plugins))}</h2>
        <div className={css.line}>
          <label className={css.check}>
            <input
              type="checkbox"
              role="switch"
              aria-checked={trigger.enabled}
              checked={trigger.enabled}
              onChange={(event) => setEnabled(trigger, event.target.checked)}
            />
            Enabled
          </label>
          <Button onClick={() => setEditing(true)}>Edit</Button>
          <Button onClick={() => setDeleting(true)}>Delete</Button>
        </div>
      </div>
      <Panel title="What it does">
        <Pairs
          pairs={[
            ["Waits for", safeText(waitsFor(trigger, plugins))],
            [
              "Starts",
              <Link key="workflow" href={`/w/${encodeURIComponent(trigger.workflowId)}`}>
                {trigger.workflowId}
              </Link>,
            ],
            ...(trigger.match.length
              ? [
                  ["If", trigger.match.map((m) => `${m.lhs} ${m.op} ${m.rhs}`).join(", ")] as [
                    string,
                    string,
                  ],
                ]
              : []),
            ...(trigger.nextAt
              ? [
                  ["Next", `${dateTime(trigger.nextAt)}, ${ago(trigger.nextAt, now)}`] as [
                    string,
                    string,
                  ],
                ]
              : []),
            ["Last fired", trigger.lastFiredAt ? ago(trigger.lastFiredAt, now) : "never"],
            ...(trigger.cwd ? [["Works in", trigger.cwd] as [string, string]] : []),
          ]}
        />
      </Panel>
      {isWebhook && (
        <>
          <Panel title="Address">
            <Address trigger={trigger} onLeaving={setLeaving} />
            {plugin?.signature && <Secret trigger={trigger} />}
          </Panel>
          <Panel title="Trial">
            <Trial trigger={trigger} plugin={plugin} />
          </Panel>
        </>
      )}
      {!isLeaving && <Deliveries trigger={trigger} />}
      {editing && (
        <TriggerForm
          trigger={trigger}
          plugins={plugins}
          onClose={() => setEditing(false)}
          onSaved={(saved) => {
            setEditing(false);
            go(dispatchAddress(saved));
          }}
        />
      )}
      {deleting && (
        <Confirm
          title="Delete this trigger?"
          action="Delete"
          onClose={() => setDeleting(false)}
          onConfirm={remove}
        >
          {isWebhook && "Its address is dead at once. "}Runs that it started stay.
        </Confirm>
      )}
    </>
  );
}
