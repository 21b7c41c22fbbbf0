import { useState } from "react";
import { useLocation } from "wouter";
import { startDemo } from "../../start/workflows";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import css from "./Home.module.css";

/** What there is to do where nothing has run yet: watch the example. */
export function FirstVisit() {
  const [, go] = useLocation();
  const [busy, setBusy] = useState(false);
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
    <section className={css.first} aria-labelledby="first">
      <h2 id="first">Watch a loop turn failing tests green</h2>
      <p>
        A small project has four failing tests. A scripted agent mends them, round by round, until
        the check is met. It takes a few seconds, needs no account and costs nothing.
      </p>
      <Button look="primary" disabled={busy} onClick={start}>
        {busy ? "Starting…" : "Run the example"}
      </Button>
      {error !== null && <Failure error={error} />}
    </section>
  );
}
