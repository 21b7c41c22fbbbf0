/** Saves the raw output of a run, or of a step of it, as a file. */
import { call } from "../api/client";

const PAGE = 5_000;

export async function downloadLog(runId: string, step: string): Promise<void> {
  const parts: string[] = [];
  let after: number | null = 0;
  while (after !== null) {
    const query: Record<string, string | number> = { after, step, limit: PAGE };
    const page = await call("GET /api/runs/{run_id}/log", { path: { run_id: runId }, query });
    for (const message of page.events) {
      if (message.type === "stdout_chunk") parts.push(message.line);
    }
    after = page.next ?? null;
  }
  const link = document.createElement("a");
  const url = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
  link.href = url;
  link.download = `${[runId, step.replace(/[^\w.-]+/g, "_")].filter(Boolean).join("-")}.log`;
  link.click();
  URL.revokeObjectURL(url);
}
