import { Link, useParams } from "wouter";
import type { Approval } from "../../api/generated";
import { useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { approvalAddress, isAt } from "../../approval/address";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { ago, plural, shortId } from "../../ui/format";
import { Panel } from "../../ui/Panel/Panel";
import { Split, SplitItem } from "../../ui/Split/Split";
import { safeText } from "../../ui/safeText";
import { useNow } from "../../ui/useNow";
import { Earlier } from "./Earlier";
import { Question } from "./Question";

/** Questions of agents and workflows, and the answers of a person. */
export default function Approvals() {
  const { id = "" } = useParams();
  const approvals = useApi("GET /api/approvals", {}, { refetchInterval: 5_000 });
  const triggers = useApi("GET /api/triggers").data?.triggers ?? [];
  const now = useNow();
  const waiting = (approvals.data?.approvals ?? []).filter((each) => each.state === "waiting");
  const wanted = id && safeDecode(id);
  const shown = wanted ? waiting.find((each) => isAt(wanted, each, triggers)) : waiting[0];
  const at = shown ? waiting.indexOf(shown) : -1;
  const next = waiting.length > 1 && at >= 0 ? waiting[(at + 1) % waiting.length] : undefined;
  return (
    <Page crumbs={["Approvals"]} full>
      <Split
        side={
          <>
            {approvals.error && !approvals.data && (
              <Failure error={approvals.error} retry={() => void approvals.refetch()} />
            )}
            <Panel
              title={
                waiting.length
                  ? `${plural(waiting.length, "question")} for you`
                  : "Nothing waits for you"
              }
            >
              {approvals.data && waiting.length === 0 && (
                <Empty>
                  Agents that must ask first, and workflows that wait for a person, ask here.
                </Empty>
              )}
              {waiting.map((each) => (
                <Item
                  key={each.id}
                  approval={each}
                  href={approvalAddress(each, triggers)}
                  isShown={each === shown}
                  now={now}
                />
              ))}
            </Panel>
            <Earlier shown={wanted} />
          </>
        }
        isChosen={Boolean(wanted)}
        back={{ href: "/approvals", label: "All questions" }}
        next={next && <Link href={approvalAddress(next, triggers)}>Next ›</Link>}
        look="form"
        label="Question"
      >
        {shown ? (
          <Question key={shown.id} approval={shown} />
        ) : wanted && approvals.data && !wanted.startsWith("missed-schedule:") ? (
          <Settled key={wanted} id={wanted} />
        ) : null}
      </Split>
    </Page>
  );
}

/** A question that does not wait any more. */
function Settled({ id }: { id: string }) {
  const read = useApi("GET /api/approvals/{approval_id}", { path: { approval_id: id } });
  if (read.error) return <Failure error={read.error} />;
  return read.data ? <Question approval={read.data.approval} /> : null;
}

interface ItemProps {
  approval: Approval;
  href: string;
  isShown: boolean;
  now: number;
}

function Item({ approval, href, isShown, now }: ItemProps) {
  const facts = [
    approval.stepPath && `step ${approval.stepPath}`,
    approval.runId && `run ${shortId(approval.runId)}`,
    approval.expiresAt && `expires ${ago(approval.expiresAt, now)}`,
  ];
  return (
    <SplitItem
      href={href}
      isShown={isShown}
      title={
        <>
          <span aria-hidden="true">▲ </span>
          {safeText(approval.title)}
        </>
      }
      detail={safeText(facts.filter(Boolean).join(", "))}
    />
  );
}

function safeDecode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
