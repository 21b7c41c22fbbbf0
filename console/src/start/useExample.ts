import { useState } from "react";
import { useLocation } from "wouter";
import { startDemo } from "./workflows";

/** Start the example, which needs no account, and open its run. */
export function useExample() {
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
  return { start, isBusy, error };
}
