import type { RefObject } from "react";
import { Button } from "../ui/Button/Button";
import { Menu } from "../ui/Menu/Menu";
import css from "./Log.module.css";
import type { LogOptions } from "./options";

interface Props {
  options: LogOptions;
  setOptions: (change: Partial<LogOptions>) => void;
  find: string;
  setFind: (text: string) => void;
  findField: RefObject<HTMLInputElement | null>;
  found: number;
  foundAt: number;
  goToFound: (step: 1 | -1) => void;
  /** There is earlier output that a search has not seen. */
  searchEarlier: (() => void) | null;
  download: () => void;
}

/** What is found in the log, and how it is shown. */
export function LogBar(props: Props) {
  const { options, setOptions, find, found, foundAt, goToFound, searchEarlier } = props;
  const turn = (name: keyof LogOptions, label: string) => ({
    label: `${options[name] ? "✓ " : ""}${label}`,
    onSelect: () => setOptions({ [name]: !options[name] }),
  });
  return (
    <div className={css.bar}>
      <input
        ref={props.findField}
        type="search"
        aria-label="Find in log"
        placeholder="Find in log"
        className={css.find}
        value={find}
        onChange={(event) => props.setFind(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") goToFound(event.shiftKey ? -1 : 1);
          if (event.key === "Escape") props.setFind("");
        }}
      />
      {find && (
        <span className={css.found} role="status">
          <span className="number">{found ? `${foundAt + 1}/${found}` : "0"}</span>
          <Button look="plain" aria-label="Previous match" onClick={() => goToFound(-1)}>
            ↑
          </Button>
          <Button look="plain" aria-label="Next match" onClick={() => goToFound(1)}>
            ↓
          </Button>
          {searchEarlier && (
            <Button look="plain" onClick={searchEarlier}>
              Search earlier output
            </Button>
          )}
        </span>
      )}
      <span className={css.space} />
      {options.stderrOnly && (
        <Button look="plain" onClick={() => setOptions({ stderrOnly: false })}>
          only stderr ✕
        </Button>
      )}
      <Menu
        label="Log options"
        items={[
          turn("wrap", "Wrap lines"),
          turn("times", "Timestamps"),
          turn("stderrOnly", "Only stderr"),
          { label: "Download raw", onSelect: props.download },
        ]}
      >
        Options
      </Menu>
    </div>
  );
}
