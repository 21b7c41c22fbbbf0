import { useEffect } from "react";
import { Link } from "wouter";
import { useLink } from "../../api/feed/port";
import { useApi } from "../../api/query";
import { Button } from "../../ui/Button/Button";
import { clock } from "../../ui/format";
import { usePalette } from "../palette";
import { useCrumbs } from "./Page";
import css from "./TopBar.module.css";

/** Where one is, what runs, what waits for a person, and whether the server answers. */
export function TopBar({ asked }: { asked: number }) {
  const { crumbs } = useCrumbs();
  const link = useLink();
  const runs = useApi("GET /api/runs", { query: { limit: 50 } }, { refetchInterval: 5_000 });
  const queue = useApi("GET /api/triggers/queue", {}, { refetchInterval: 5_000 });
  const running = runs.data?.runs.filter((run) => run.status === "running").length ?? 0;
  const openPalette = usePalette((state) => state.open);
  const title = crumbs.at(-1) ?? "";
  useEffect(() => {
    const count = asked ? `(${asked}) ` : "";
    document.title = `${count}${title && title !== "Home" ? `${title} · ` : ""}infloop`;
  }, [asked, title]);
  return (
    <header className={css.bar}>
      <h1 className={css.crumbs}>{crumbs.join(" / ")}</h1>
      <div className={css.side}>
        <Link href="/runs?status=running" className={css.count}>
          <span className="number">{running}</span> running
        </Link>
        <Link href="/queue" className={css.count}>
          <span className="number">{queue.data?.size ?? 0}</span> queued
        </Link>
        {asked > 0 && (
          <Link href="/approvals" className={css.asked}>
            <span aria-hidden="true">▲</span> {asked} {asked === 1 ? "waits" : "wait"} for you
          </Link>
        )}
        <span role="status" aria-label="Connection" className={css.link}>
          {!link.online && `no answer since ${clock(link.since)}`}
        </span>
        <Button look="plain" onClick={openPalette} aria-keyshortcuts="Control+K">
          <span aria-hidden="true">⌕</span> <span className={css.find}>Find</span>
          <span aria-hidden="true" className={css.kbd}>
            Ctrl K
          </span>
        </Button>
      </div>
    </header>
  );
}
