import { call } from "../api/client";
import { refresh } from "../api/query";
import type { Values } from "./schema";

export interface RunOptions {
  workflowId: string;
  inputs?: Values;
  /** A directory of the server's machine. */
  cwd?: string;
}

/** A key that no other request has. */
export function newKey(): string {
  // `crypto.randomUUID` exists only where the page came over TLS or from this machine.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Start a run; the same `key` never starts a second one. Returns the address of its page. */
export async function startRun({ workflowId, inputs, cwd }: RunOptions, key: string) {
  const { runId } = await call("POST /api/run", {
    body: { workflowId, inputs: inputs ?? {}, cwd: cwd || undefined },
    headers: { "idempotency-key": key },
  });
  refresh("GET /api/runs", "GET /api/triggers/queue", "GET /api/workflows");
  return `/r/${encodeURIComponent(runId)}`;
}
