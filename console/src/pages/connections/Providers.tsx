import type { ProviderStatus } from "../../api/generated";
import { useApi } from "../../api/query";
import { Failure } from "../../ui/Failure/Failure";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { StateMark } from "../../ui/StateMark/StateMark";
import css from "./Connections.module.css";

/** Which providers are installed and logged in, and what they may do here. */
export function Providers() {
  const read = useApi("GET /api/providers/status", {}, { staleTime: 30_000 });
  return (
    <Panel title="Providers">
      {read.error && !read.data && <Failure error={read.error} retry={() => void read.refetch()} />}
      {read.isPending && <p role="status">Asking each program…</p>}
      {read.data && (
        <>
          <p className={css.note}>
            Programs run at the level {read.data.level}. {read.data.reason}
          </p>
          <Rows
            label="Providers"
            columns="minmax(130px, auto) minmax(120px, auto) minmax(130px, auto) minmax(0, 1fr)"
          >
            {read.data.providers.map((each) => (
              <ProviderRow key={each.id} provider={each} />
            ))}
          </Rows>
        </>
      )}
    </Panel>
  );
}

function ProviderRow({ provider }: { provider: ProviderStatus }) {
  const { installed, login } = provider;
  return (
    <Row name={`${provider.label}, ${installed === false ? "not installed" : "installed"}`}>
      <Line>
        <Cell grow title={provider.id}>
          <strong>{provider.label}</strong>
        </Cell>
        <Cell title={provider.program}>
          {installed === undefined ? (
            <span className="quiet">{provider.transport}</span>
          ) : (
            <StateMark
              state={installed ? "succeeded" : "cancelled"}
              word={installed ? provider.version || "installed" : "not installed"}
            />
          )}
        </Cell>
      </Line>
      <Line>
        <Cell title={login.place}>
          {login.status === "missing" ? (
            <StateMark state="waiting" word="not logged in" />
          ) : (
            <span className="quiet">
              {login.status === "found" ? "logged in" : `login ${login.status}`}
            </span>
          )}
        </Cell>
        <Cell wrap grow>
          {installed === false && provider.install ? (
            <code>{provider.install}</code>
          ) : login.status === "missing" && login.command ? (
            <code>{login.command}</code>
          ) : (
            <span className="quiet">{provider.may}</span>
          )}
        </Cell>
      </Line>
    </Row>
  );
}
