import { safeText } from "../ui/safeText";
import css from "./Diff.module.css";
import type { ChangedFile } from "./files";

const KINDS = { added: "A", modified: "M", deleted: "D", mode: "P", type: "T" };
const WORDS = {
  added: "added",
  modified: "modified",
  deleted: "deleted",
  mode: "permissions",
  type: "type",
};

interface Props {
  files: readonly ChangedFile[];
  chosen: string;
  onChoose: (key: string) => void;
}

/** Changed files by folder, with counts; files that other programs act on stand first. */
export function FileList({ files, chosen, onChoose }: Props) {
  const groups = groupsOf(files);
  return (
    <nav aria-label="Changed files" className={css.files}>
      {groups.map(([folder, members]) => (
        <div key={folder}>
          {groups.length > 1 && <p className={css.folder}>{safeText(folder)}</p>}
          {members.map((file) => (
            <button
              key={file.key}
              type="button"
              className={css.file}
              aria-current={file.key === chosen ? "true" : undefined}
              title={safeText(file.protectedBy || file.path)}
              onClick={() => onChoose(file.key)}
            >
              <abbr title={WORDS[file.kind]} className={css.kind}>
                {KINDS[file.kind]}
              </abbr>
              <span className={css.fileName}>
                {file.protectedBy && <span className={css.guard}>▲</span>}
                {safeText(file.path.slice(file.path.lastIndexOf("/", file.path.length - 2) + 1))}
              </span>
              <Counts insertions={file.insertions} deletions={file.deletions} />
            </button>
          ))}
        </div>
      ))}
    </nav>
  );
}

export function Counts({ insertions, deletions }: { insertions: number; deletions: number }) {
  return (
    <span className={css.counts}>
      <span className={css.plus}>+{insertions}</span>
      <span className={css.minus}>−{deletions}</span>
    </span>
  );
}

function groupsOf(files: readonly ChangedFile[]): [string, ChangedFile[]][] {
  const several = new Set(files.map((file) => file.directory)).size > 1;
  const groups = new Map<string, ChangedFile[]>();
  for (const file of files) {
    const slash = file.path.lastIndexOf("/", file.path.length - 2);
    const inside = slash < 0 ? "" : file.path.slice(0, slash + 1);
    const folder = [several ? file.directory : "", inside].filter(Boolean).join(" ");
    const name = file.protectedBy ? "Protected: other programs act on these" : folder || "./";
    groups.set(name, [...(groups.get(name) ?? []), file]);
  }
  return [...groups];
}
