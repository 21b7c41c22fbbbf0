import { useState } from "react";
import { useApi } from "../api/query";
import { Button } from "../ui/Button/Button";
import { Dialog } from "../ui/Dialog/Dialog";
import { Empty } from "../ui/Empty/Empty";
import { Failure } from "../ui/Failure/Failure";
import { safeText } from "../ui/safeText";
import css from "./DirectoryDialog.module.css";

interface Props {
  /** Where to begin; the home directory if it is no absolute path. */
  start: string;
  onChoose: (path: string) => void;
  onClose: () => void;
}

/** Chooses a directory of the server's machine. */
export function DirectoryDialog({ start, onChoose, onClose }: Props) {
  const [wanted, setWanted] = useState(start.startsWith("/") ? start : "");
  const [showHidden, setShowHidden] = useState(false);
  const { data, error } = useApi("GET /api/fs/list", { query: { path: wanted, showHidden } });
  const inside = (name: string) => `${data?.path === "/" ? "" : data?.path}/${name}`;
  return (
    <Dialog
      title="Choose a directory"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" disabled={!data} onClick={() => data && onChoose(data.path)}>
            Use this directory
          </Button>
        </>
      }
    >
      {error && (
        <>
          <Failure error={error} />
          <Button onClick={() => setWanted("/")}>Begin at /</Button>
        </>
      )}
      {data && (
        <>
          <p className={css.path}>
            <code>{safeText(data.path)}</code>
          </p>
          <ul className={css.list} aria-label="Directories">
            {data.parent !== null && (
              <li>
                <button type="button" onClick={() => setWanted(data.parent ?? "")}>
                  ↑ One level up
                </button>
              </li>
            )}
            {data.entries
              .filter((each) => each.isDir)
              .map((each) => (
                <li key={each.name}>
                  <button type="button" onClick={() => setWanted(inside(each.name))}>
                    {safeText(each.name)}/
                  </button>
                </li>
              ))}
          </ul>
          {data.entries.length === 0 && <Empty>No directories inside.</Empty>}
          {data.truncated && <p className="quiet">There are more; type the path instead.</p>}
          <label className={css.hidden}>
            <input
              type="checkbox"
              checked={showHidden}
              onChange={(event) => setShowHidden(event.target.checked)}
            />
            Show hidden directories
          </label>
        </>
      )}
    </Dialog>
  );
}
