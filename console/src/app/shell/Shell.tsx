import { type ReactNode, useEffect } from "react";
import { Link, useLocation } from "wouter";
import { useApi } from "../../api/query";
import { Toasts } from "../../ui/Toast/toast";
import { addressOf, ROUTES } from "../routes";
import { LoginNeeded } from "./LoginNeeded";
import css from "./Shell.module.css";
import { TopBar } from "./TopBar";

const PINNED = ["Home", "Runs", "Approvals"];

/** Navigation around the page: a rail at the left, a bar at the bottom on a phone. */
export function Shell({ children }: { children: ReactNode }) {
  const [location] = useLocation();
  const approvals = useApi("GET /api/approvals", {}, { refetchInterval: 5_000 });
  const asked = approvals.data?.approvals.filter((each) => each.state === "waiting").length ?? 0;
  const named = ROUTES.filter((route) => route.name);
  useEffect(() => {
    // A new page begins at its top, for eyes and for screen readers.
    if (location) document.getElementById("main")?.scrollTo(0, 0);
  }, [location]);
  return (
    <div className={css.shell}>
      <a className={css.skip} href="#main">
        Skip to content
      </a>
      <nav aria-label="Main" className={css.rail}>
        <div className={css.brand} aria-hidden="true">
          <svg className={css.logo} viewBox="0 0 16 16" aria-hidden="true">
            <path d="M3 3v10M6 3v10M9 3v10M12 3v10M1 11.5l14-7" />
          </svg>
          <span className={css.word}>infloop</span>
        </div>
        {named.map((route) => {
          const address = addressOf(route);
          const here = address === "/" ? location === "/" : isBelow(location, address);
          return (
            <Link
              key={route.path}
              href={address}
              className={css.link}
              aria-current={here ? "page" : undefined}
              data-pinned={PINNED.includes(route.name) || undefined}
              title={route.name}
            >
              <span aria-hidden="true" className={css.sign}>
                {route.sign}
              </span>
              <span className={css.word}>{route.name}</span>
              {route.name === "Approvals" && asked > 0 && (
                <span className={css.badge}>
                  {asked}
                  <span className="visually-hidden"> waiting</span>
                </span>
              )}
            </Link>
          );
        })}
        <details className={css.more}>
          <summary className={css.link}>
            <span aria-hidden="true" className={css.sign}>
              ⋯
            </span>
            <span className={css.word}>More</span>
          </summary>
          <div className={css.sheet}>
            {named
              .filter((route) => !PINNED.includes(route.name))
              .map((route) => (
                <Link
                  key={route.path}
                  href={addressOf(route)}
                  className={css.sheetLink}
                  onClick={(event) =>
                    event.currentTarget.closest("details")?.removeAttribute("open")
                  }
                >
                  <span aria-hidden="true" className={css.sign}>
                    {route.sign}
                  </span>
                  {route.name}
                </Link>
              ))}
          </div>
        </details>
      </nav>
      <div className={css.body}>
        <TopBar asked={asked} />
        {children}
      </div>
      <Toasts />
      <LoginNeeded />
    </div>
  );
}

const ALSO: Record<string, string> = { "/workflows": "/w/", "/runs": "/r/" };

function isBelow(location: string, address: string): boolean {
  const also = ALSO[address];
  return (
    location === address ||
    location.startsWith(`${address}/`) ||
    (also !== undefined && location.startsWith(also))
  );
}
