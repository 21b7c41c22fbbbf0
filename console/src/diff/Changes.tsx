import { useMemo, useRef, useState } from "react";
import { useApi } from "../api/query";
import { Button } from "../ui/Button/Button";
import { Empty } from "../ui/Empty/Empty";
import { Failure } from "../ui/Failure/Failure";
import { plural } from "../ui/format";
import { Scroll } from "../ui/Scroll/Scroll";
import { safeText } from "../ui/safeText";
import css from "./Diff.module.css";
import { DiffText } from "./DiffText";
import { Counts, FileList } from "./FileList";
import { type ChangedFile, changedFiles, countsOf, leftOut } from "./files";
import { splitPatch } from "./patch";

interface Props {
  runId: string;
  /** What this step or round changed; empty for the whole run. */
  step: string;
  /** The chosen file. */
  file: string;
  onChoose: (file: string) => void;
  isLive?: boolean;
}

/** More than this of one file is drawn only when asked for. */
const LARGE = 400_000;
/** Files after these are drawn only when asked for. */
const DRAWN = 40;

/** What a run, a step or a round changed: files with counts, and their patches. */
export function Changes({ runId, step, file, onChoose, isLive = false }: Props) {
  const [split, setSplit] = useState(false);
  const args = { path: { run_id: runId }, query: { step } };
  const often = { refetchInterval: isLive ? (10_000 as const) : (false as const) };
  const changes = useApi("GET /api/runs/{run_id}/changes", args, often);
  const diff = useApi("GET /api/runs/{run_id}/diff", args, often);
  const files = useMemo(() => (changes.data ? changedFiles(changes.data) : []), [changes.data]);
  const patches = useMemo(() => {
    const found = new Map<string, string>();
    for (const { directory, patch } of diff.data?.directories ?? []) {
      for (const each of splitPatch(patch)) found.set(`${directory}:${each.path}`, each.text);
    }
    return found;
  }, [diff.data]);
  const shown = useRef<HTMLDivElement>(null);
  const choose = (key: string) => {
    onChoose(key);
    const at = files.findIndex((each) => each.key === key);
    shown.current?.children[at]?.scrollIntoView({ block: "start" });
  };
  const error = changes.error ?? diff.error;
  if (error) return <Failure error={error} retry={() => void changes.refetch()} />;
  if (!changes.data) return <p className={css.reading}>reading changes…</p>;
  const omitted = leftOut(changes.data);
  return (
    <div className={css.changes}>
      <div className={css.bar}>
        <strong>{plural(files.length, "file")}</strong>
        <Counts {...countsOf(files)} />
        <span className={css.space} />
        <Button aria-pressed={!split} onClick={() => setSplit(false)}>
          Unified
        </Button>
        <Button aria-pressed={split} onClick={() => setSplit(true)}>
          Split
        </Button>
      </div>
      {files.length === 0 && <Empty>No files were changed here.</Empty>}
      {files.length > 0 && (
        <div className={css.columns}>
          <FileList files={files} chosen={file} onChoose={choose} />
          <Scroll className={css.patches} ref={shown}>
            {files.map((each, at) => (
              <FilePart
                key={each.key}
                file={each}
                text={patches.get(`${each.directory}:${each.path}`)}
                isReading={diff.isPending}
                split={split}
                isDrawn={at < DRAWN || each.key === file}
                isChosen={each.key === file}
              />
            ))}
          </Scroll>
        </div>
      )}
      {omitted.length > 0 && (
        <details className={css.omitted}>
          <summary>{plural(omitted.length, "file")} left out</summary>
          <ul>
            {omitted.map(([path, reason]) => (
              <li key={path}>
                <code>{safeText(path)}</code> {safeText(reason)}
              </li>
            ))}
          </ul>
        </details>
      )}
    </div>
  );
}

interface FileProps {
  file: ChangedFile;
  text: string | undefined;
  isReading: boolean;
  split: boolean;
  isDrawn: boolean;
  isChosen: boolean;
}

function FilePart({ file, text, isReading, split, isDrawn, isChosen }: FileProps) {
  const [asked, setAsked] = useState(false);
  const size = text?.length ?? 0;
  const isShown = asked || (isDrawn && size <= LARGE);
  return (
    <article className={css.part} data-chosen={isChosen || undefined} aria-label={file.path}>
      <header className={css.partHeader}>
        {file.protectedBy && <span className={css.guard}>▲ protected</span>}
        <code>{safeText(file.path)}</code>
        <span className="quiet">{file.kind}</span>
        <Counts insertions={file.insertions} deletions={file.deletions} />
      </header>
      {file.protectedBy && <p className={css.reason}>{safeText(file.protectedBy)}</p>}
      {text === undefined && (
        <p className={css.reading}>
          {isReading ? "reading…" : file.binary ? "a binary file" : "no lines to show"}
        </p>
      )}
      {text !== undefined && isShown && <DiffText text={text} split={split} />}
      {text !== undefined && !isShown && (
        <p className={css.reading}>
          <Button onClick={() => setAsked(true)}>Show {Math.ceil(size / 1_000)} kB</Button>
        </p>
      )}
    </article>
  );
}
