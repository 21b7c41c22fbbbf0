import { useRef, useState } from "react";
import { call } from "../../api/client";
import type { ConnectionEntry } from "../../api/generated";
import { refresh } from "../../api/query";
import { Button } from "../../ui/Button/Button";
import { Dialog } from "../../ui/Dialog/Dialog";
import { Failure } from "../../ui/Failure/Failure";
import { Field } from "../../ui/Field/Field";
import css from "./Connections.module.css";
import { portsText, readPorts } from "./ports";

/** Return an address with its scheme; machines at home rarely have a certificate. */
function withScheme(host: string): string {
  return host.includes("://") ? host : `http://${host}`;
}

interface Props {
  connection: ConnectionEntry | undefined;
  onClose: () => void;
}

/** Add or change a machine. Its token is sent, and then it is nowhere on the page. */
export function ConnectionForm({ connection, onClose }: Props) {
  const [label, setLabel] = useState(connection?.label ?? "");
  const [host, setHost] = useState(connection?.host ?? "");
  const [ports, setPorts] = useState(portsText(connection?.ports ?? []));
  const token = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const save = async () => {
    const given = token.current?.value ?? "";
    if (token.current) token.current.value = "";
    setBusy(true);
    setError(null);
    try {
      const body = {
        label,
        host: withScheme(host),
        ports: readPorts(ports),
        ...(given ? { token: given } : {}),
      };
      if (connection) {
        const path = { connection_id: connection.id };
        await call("PUT /api/providers/hermes-local/{connection_id}", { path, body });
      } else {
        await call("POST /api/providers/hermes-local", { body });
      }
      refresh("GET /api/providers/hermes-local", "GET /api/providers", "GET /api/providers/status");
      onClose();
    } catch (failed) {
      setError(failed);
    } finally {
      setBusy(false);
    }
  };
  const keeps = connection?.hasToken
    ? "Empty: the present one stays, unless the host changes."
    : "Empty: none.";
  return (
    <Dialog
      title={connection ? `Edit ${connection.label}` : "Add a machine"}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" type="submit" form="connection" disabled={busy}>
            {busy ? "Asking for its models…" : "Save"}
          </Button>
        </>
      }
    >
      <form
        id="connection"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <Field label="Name">
          {(control) => (
            <input
              {...control}
              required
              className={css.wide}
              value={label}
              onChange={(event) => setLabel(event.target.value)}
            />
          )}
        </Field>
        <Field label="Host" hint="Such as http://10.0.0.4.">
          {(control) => (
            <input
              {...control}
              required
              className={css.wide}
              value={host}
              onChange={(event) => setHost(event.target.value)}
            />
          )}
        </Field>
        <Field
          label="Ports"
          hint="One a line. The server at a port is asked for its model; or name it: 8642 my-model."
        >
          {(control) => (
            <textarea
              {...control}
              required
              rows={3}
              className={css.wide}
              value={ports}
              onChange={(event) => setPorts(event.target.value)}
            />
          )}
        </Field>
        <Field label="Access token" hint={keeps}>
          {(control) => (
            <input
              {...control}
              ref={token}
              type="password"
              autoComplete="off"
              className={css.wide}
            />
          )}
        </Field>
        {error !== null && <Failure error={error} />}
      </form>
    </Dialog>
  );
}
