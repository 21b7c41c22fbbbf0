import { useState } from "react";
import { create } from "zustand";
import { ApiFailure, whenLoginNeeded } from "../../api/client";
import { queryClient } from "../../api/query";
import { Button } from "../../ui/Button/Button";
import { Dialog } from "../../ui/Dialog/Dialog";
import { Failure } from "../../ui/Failure/Failure";
import { Field } from "../../ui/Field/Field";

const useLogin = create<{ needed: boolean }>(() => ({ needed: false }));
whenLoginNeeded(() => useLogin.setState({ needed: true }));

/** Asks for the token above the page, so that what is typed there is kept. */
export function LoginNeeded() {
  const { needed } = useLogin();
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>(null);
  if (!needed) return null;
  const logIn = async () => {
    const body = new URLSearchParams({ token });
    const response = await fetch("/login", { method: "POST", body, redirect: "manual" }).catch(
      () => null,
    );
    // The answer to a right token leads to a page, which is not fetched here.
    if (response?.type === "opaqueredirect") {
      useLogin.setState({ needed: false });
      setToken("");
      setError(null);
      void queryClient.invalidateQueries();
    } else {
      const text = response ? "That is not the token." : "The server does not answer.";
      setError(new ApiFailure(response?.status ?? 0, "login", text));
    }
  };
  return (
    <Dialog
      title="Log in"
      onClose={() => useLogin.setState({ needed: false })}
      actions={
        <Button look="primary" type="submit" form="login-form">
          Log in
        </Button>
      }
    >
      <form
        id="login-form"
        onSubmit={(event) => {
          event.preventDefault();
          void logIn();
        }}
      >
        <Field label="Token" hint="What INFLOOP_API_TOKEN holds on the server.">
          {(control) => (
            <input
              {...control}
              type="password"
              autoComplete="current-password"
              value={token}
              onChange={(event) => setToken(event.target.value)}
            />
          )}
        </Field>
        {error !== null && <Failure error={error} />}
      </form>
    </Dialog>
  );
}
