import { useState } from "react";
import { useLocation } from "wouter";
import { startDemo } from "../../start/workflows";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import css from "./Workflows.module.css";

/** Offers the example where nothing has run yet. */
export function Example() {
  const [, go] = useLocation();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const start = () => {
    setBusy(true);
    setError(null);
    startDemo()
      .then(go)
      .catch(setError)
      .finally(() => setBusy(false));
  };
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
