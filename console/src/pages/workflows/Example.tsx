import { useExample } from "../../start/useExample";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import css from "./Workflows.module.css";

/** Offers the example where nothing has run yet. */
export function Example() {
  const { start, isBusy, error } = useExample();
  return (
    <section className={css.example} aria-label="Example">
      <p>
        Nothing has run here yet. The example mends a small project with four failing tests, round
        by round. It needs no account and costs nothing.
      </p>
      <Button disabled={isBusy} onClick={start}>
        {isBusy ? "Starting…" : "Run the example"}
      </Button>
      {error !== null && <Failure error={error} />}
    </section>
  );
}
