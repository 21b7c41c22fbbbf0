import { Link } from "wouter";
import { ApiFailure } from "../../api/client";
import css from "./Failure.module.css";

/** What went wrong, its id in the audit log, and what to do next. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const failure = error instanceof ApiFailure ? error : null;
  return (
    <div role="alert" className={css.failure}>
      <p>{error instanceof Error ? error.message : String(error)}</p>
      {failure?.problems.map((problem) => (
        <p key={`${problem.place}${problem.message}`} className={css.problem}>
          <code>{problem.place}</code> {problem.message} {problem.hint}
        </p>
      ))}
      <p className={css.more}>
        {retry && (
          <button type="button" className={css.retry} onClick={retry}>
            Try again
          </button>
        )}
        {failure?.correlationId && (
          <Link href={`/audit?correlationId=${encodeURIComponent(failure.correlationId)}`}>
            {failure.correlationId}
          </Link>
        )}
      </p>
    </div>
  );
}
