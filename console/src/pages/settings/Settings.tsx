import { useState } from "react";
import type { SettingEntry } from "../../api/generated";
import { useApi } from "../../api/query";
import { useSingleKeys } from "../../app/keys";
import { Page } from "../../app/shell/Page";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import { Choice } from "../../ui/Filters/Filters";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { type Theme, useTheme } from "../../ui/theme";
import { WithCode } from "../../ui/WithCode/WithCode";
import css from "./Settings.module.css";

/** How this browser shows the console, and the settings that the server runs with. */
export default function Settings() {
  const session = useApi("GET /api/session");
  const single = useSingleKeys();
  const { theme, choose } = useTheme();
  return (
    <Page crumbs={["Settings"]}>
      <Panel title="This browser">
        <div className={css.own}>
          <Choice
            label="Theme"
            value={theme}
            onChoose={(value) => choose(value as Theme)}
            options={[
              ["system", "as the system"],
              ["light", "light"],
              ["dark", "dark"],
            ]}
          />
          <label className={css.check}>
            <input
              type="checkbox"
              checked={single.on}
              onChange={(event) => single.set(event.target.checked)}
            />
            Keys without Ctrl and Alt
          </label>
          {session.data && <span className="quiet">You are: {session.data.actor}</span>}
          <form method="post" action="/logout">
            <Button type="submit">Log out</Button>
          </form>
        </div>
      </Panel>
      <ServerSettings />
    </Page>
  );
}

/** What was set comes first; where from tells where to change it. */
function ServerSettings() {
  const read = useApi("GET /api/settings");
  const [text, setText] = useState("");
  const wanted = text.trim().toLowerCase();
  const found = (read.data?.settings ?? []).filter(
    (each) =>
      each.name.toLowerCase().includes(wanted) || each.description.toLowerCase().includes(wanted),
  );
  const isSet = (each: SettingEntry) => each.source !== "default";
  const sorted = [...found.filter(isSet), ...found.filter((each) => !isSet(each))];
  return (
    <Panel
      title="Server"
      side={
        <input
          type="search"
          aria-label="Find a setting"
          placeholder="Find a setting"
          className={css.find}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      }
    >
      {read.error && !read.data && <Failure error={read.error} retry={() => void read.refetch()} />}
      {read.data?.unknown.map((each) => (
        <p key={each} className={css.unknown}>
          {each}
        </p>
      ))}
      {read.data && sorted.length === 0 && <p className="quiet">No setting has these letters.</p>}
      <Rows
        label="Settings"
        columns="minmax(220px, auto) minmax(90px, 220px) minmax(90px, auto) minmax(0, 1fr)"
      >
        {sorted.map((each) => (
          <Row key={each.name} name={`${each.name}, ${shown(each)}`}>
            <Line>
              <Cell grow>
                <code>{each.name}</code>
              </Cell>
              <Cell title={shown(each)} end>
                <code className={isSet(each) ? css.set : "quiet"}>{shown(each)}</code>
              </Cell>
            </Line>
            <Line>
              <Cell>
                <span className={isSet(each) ? css.set : "quiet"}>{each.source}</span>
              </Cell>
              <Cell wrap grow>
                <span className="quiet">
                  <WithCode text={each.description} />
                </span>
              </Cell>
            </Line>
          </Row>
        ))}
      </Rows>
    </Panel>
  );
}

function shown(setting: SettingEntry): string {
  if (setting.value === null || setting.value === "") return "–";
  return String(setting.value);
}
