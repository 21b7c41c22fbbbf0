import { QueryClientProvider } from "@tanstack/react-query";
import { Suspense, useEffect, useMemo, useState } from "react";
import { Route, Switch, useLocation } from "wouter";
import { queryClient } from "../api/query";
import { type KeyBinding, listenForKeys, useKeys } from "./keys";
import { followServer } from "./live";
import { NotFound } from "./NotFound";
import { usePalette } from "./palette";
import { addressOf, ROUTES } from "./routes";
import { Boundary } from "./shell/Boundary";
import { KeyHelp } from "./shell/KeyHelp";
import { Palette } from "./shell/Palette";
import { Shell } from "./shell/Shell";

export function App() {
  const [help, setHelp] = useState(false);
  const [location, go] = useLocation();
  useEffect(listenForKeys, []);
  useEffect(followServer, []);
  const keys = useMemo<KeyBinding[]>(
    () => [
      { keys: "Ctrl+K", what: "find anything", run: usePalette.getState().open },
      { keys: "?", what: "show keys", run: () => setHelp(true) },
      ...ROUTES.filter((route) => route.key).map((route) => ({
        keys: `g ${route.key}`,
        what: `go to ${route.name}`,
        run: () => go(addressOf(route)),
      })),
    ],
    [go],
  );
  useKeys(keys);
  return (
    <QueryClientProvider client={queryClient}>
      <Shell>
        <Boundary place={location}>
          <Suspense fallback={<main id="main" aria-busy="true" />}>
            <Switch>
              {ROUTES.map((route) => (
                <Route key={route.path} path={route.path} component={route.page} />
              ))}
              <Route component={NotFound} />
            </Switch>
          </Suspense>
        </Boundary>
      </Shell>
      <Palette />
      {help && <KeyHelp onClose={() => setHelp(false)} />}
    </QueryClientProvider>
  );
}
