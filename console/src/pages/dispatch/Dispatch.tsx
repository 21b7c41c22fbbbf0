import { useState } from "react";
import { Link, useLocation, useParams } from "wouter";
import type { TriggerView } from "../../api/generated";
import { useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { Button } from "../../ui/Button/Button";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { Panel } from "../../ui/Panel/Panel";
import { Split, SplitItem } from "../../ui/Split/Split";
import { safeText } from "../../ui/safeText";
import { TriggerDetail } from "./TriggerDetail";
import { TriggerForm } from "./TriggerForm";
import { dispatchAddress, waitsFor } from "./triggers";

/** What starts workflows without a person: webhooks, schedules, watched files. */
export default function Dispatch() {
  const { mark = "" } = useParams();
  const [, go] = useLocation();
  const triggers = useApi("GET /api/triggers", {}, { refetchInterval: 10_000 });
  const plugins = useApi("GET /api/webhook-plugins", {}, { staleTime: 60_000 });
  const [making, setMaking] = useState(false);
  const all: TriggerView[] = triggers.data?.triggers ?? [];
  const wanted = safeDecode(mark);
  const shown = wanted ? all.find((each) => each.mark === wanted) : all[0];
  const senders = plugins.data?.plugins ?? [];
  return (
    <Page crumbs={["Dispatch"]} full>
      <Split
        side={
          <>
            {triggers.error && !triggers.data && (
              <Failure error={triggers.error} retry={() => void triggers.refetch()} />
            )}
            <Panel
              title="Triggers"
              side={<Button onClick={() => setMaking(true)}>New trigger</Button>}
            >
              {triggers.data && all.length === 0 && (
                <Empty>A trigger starts a workflow when a request, a time or a file comes.</Empty>
              )}
              {all.map((each) => (
                <SplitItem
                  key={each.id}
                  href={dispatchAddress(each)}
                  isShown={each === shown}
                  title={
                    <>
                      <span className="quiet">{each.enabled ? "on" : "off"}</span>{" "}
                      {safeText(each.name || waitsFor(each, senders))} ▸ {each.workflowId}
                    </>
                  }
                  detail={safeText(waitsFor(each, senders))}
                />
              ))}
            </Panel>
          </>
        }
        isChosen={Boolean(mark)}
        back={{ href: "/dispatch", label: "All triggers" }}
        label="Trigger"
      >
        {shown && <TriggerDetail key={shown.mark} trigger={shown} plugins={senders} />}
        {wanted && triggers.data && !shown && (
          <Empty>
            There is no trigger with this mark; its address may have changed.{" "}
            <Link href="/dispatch">All triggers</Link>
          </Empty>
        )}
      </Split>
      {making && (
        <TriggerForm
          plugins={senders}
          onClose={() => setMaking(false)}
          onSaved={(made) => {
            setMaking(false);
            go(dispatchAddress(made));
          }}
        />
      )}
    </Page>
  );
}

function safeDecode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
