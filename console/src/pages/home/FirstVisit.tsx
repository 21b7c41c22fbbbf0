import { useExample } from "../../start/useExample";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import css from "./Home.module.css";

/** What there is to do where nothing has run yet: watch the example. */
export function FirstVisit() {
  const { start, isBusy, error } = useExample();
  return (
    <section className={css.first} aria-labelledby="first">
      <h2 id="first">Watch a loop turn failing tests green</h2>
      <p>
        A small project has four failing tests. A scripted agent mends them, round by round, until
        the check is met. It takes a few seconds, needs no account and costs nothing.
      </p>
      <Button look="primary" disabled={isBusy} onClick={start}>
        {isBusy ? "Starting…" : "Run the example"}
      </Button>
      {error !== null && <Failure error={error} />}
    </section>
  );
}
