import { useState } from "react";
import { call } from "../../api/client";
import type { ConnectionEntry } from "../../api/generated";
import { refresh, useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { Button } from "../../ui/Button/Button";
import { Confirm } from "../../ui/Confirm/Confirm";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { StateMark } from "../../ui/StateMark/StateMark";
import { safeText } from "../../ui/safeText";
import { complain, say } from "../../ui/Toast/toast";
import { ConnectionForm } from "./ConnectionForm";
import css from "./Connections.module.css";
import { Providers } from "./Providers";

/** Machines with model servers, and every provider that an agent node can name. */
export default function Connections() {
  const list = useApi("GET /api/providers/hermes-local");
  const [edited, setEdited] = useState<ConnectionEntry | "new">();
  const [doomed, setDoomed] = useState<ConnectionEntry>();
  const remove = (each: ConnectionEntry) =>
    call("DELETE /api/providers/hermes-local/{connection_id}", { path: { connection_id: each.id } })
      .then(() => {
        say("Deleted.");
        refresh(
          "GET /api/providers/hermes-local",
          "GET /api/providers",
          "GET /api/providers/status",
        );
      })
      .catch(complain);
  return (
    <Page crumbs={["Connections"]}>
      <Panel
        title="Machines with model servers"
        side={<Button onClick={() => setEdited("new")}>Add</Button>}
      >
        {list.error && !list.data && (
          <Failure error={list.error} retry={() => void list.refetch()} />
        )}
        {list.data && list.data.connections.length === 0 && (
          <Empty>
            A machine of yours that serves models can be added: each port is a provider.
          </Empty>
        )}
        {list.data && list.data.connections.length > 0 && (
          <Rows
            label="Machines"
            columns="minmax(120px, auto) minmax(120px, auto) minmax(90px, auto) minmax(0, 1fr) auto"
          >
            {list.data.connections.map((each) => (
              <Row key={each.id} name={`${each.label}, ${each.host}`}>
                <Line>
                  <Cell grow>
                    <strong>{safeText(each.label)}</strong>
                  </Cell>
                  <Cell>
                    <code>{each.host}</code>
                  </Cell>
                  <Cell>token {each.hasToken ? "set" : "not set"}</Cell>
                </Line>
                <Line>
                  <Cell wrap grow>
                    <span className={css.ports}>
                      {each.ports.map((port) => (
                        <StateMark
                          key={port.port}
                          state={port.profile ? "succeeded" : "failed"}
                          word={`${port.port} ${safeText(port.profile ?? "no model found")}`}
                        />
                      ))}
                    </span>
                    {each.problems.map((problem) => (
                      <p key={problem.message}>
                        {problem.message} {problem.hint}
                      </p>
                    ))}
                  </Cell>
                  <Cell end>
                    <span className={css.ports}>
                      <Button aria-label={`Edit ${each.label}`} onClick={() => setEdited(each)}>
                        Edit
                      </Button>
                      <Button aria-label={`Delete ${each.label}`} onClick={() => setDoomed(each)}>
                        Delete
                      </Button>
                    </span>
                  </Cell>
                </Line>
              </Row>
            ))}
          </Rows>
        )}
        {list.data?.unusable.map((each) => (
          <p key={each.id} className={css.unusable}>
            <code>{each.id}</code> cannot be used: {each.problems.map((p) => p.message).join(" ")}
          </p>
        ))}
      </Panel>
      <Providers />
      {edited && (
        <ConnectionForm
          connection={edited === "new" ? undefined : edited}
          onClose={() => setEdited(undefined)}
        />
      )}
      {doomed && (
        <Confirm
          title={`Delete ${doomed.label}?`}
          action="Delete"
          onClose={() => setDoomed(undefined)}
          onConfirm={() => void remove(doomed)}
        >
          Workflows that name one of its providers cannot run any more.
        </Confirm>
      )}
    </Page>
  );
}
