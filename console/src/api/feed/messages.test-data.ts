/** Streams and messages for tests of the feed. */
import type { StdoutChunk } from "../generated";

export type { StdoutChunk };

export function chunk(seq: number, line: string, stepPath = "step"): StdoutChunk {
  return {
    type: "stdout_chunk",
    runId: "run-1",
    seq,
    time: seq,
    correlationId: "c",
    nodeId: stepPath,
    stepPath,
    line,
  };
}

/** A server whose one stream the test writes. */
export function streamOf() {
  let controller: ReadableStreamDefaultController<Uint8Array> | null = null;
  const asked: Record<string, string>[] = [];
  const settle = () => new Promise<void>((resolve) => queueMicrotask(() => resolve()));
  const settleAll = async () => {
    for (let turn = 0; turn < 20; turn += 1) await settle();
  };
  return {
    asked,
    fetch: async (_: string, { headers }: { headers: Record<string, string> }) => {
      asked.push(headers);
      const body = new ReadableStream<Uint8Array>({
        start: (made) => {
          controller = made;
        },
      });
      return { status: 200, ok: true, body };
    },
    async write(messages: StdoutChunk[]) {
      await settleAll();
      for (const each of messages) {
        const text = `id: ${each.seq}\ndata: ${JSON.stringify(each)}\n\n`;
        controller?.enqueue(new TextEncoder().encode(text));
      }
      await settleAll();
    },
    async fail() {
      controller?.error(new Error("gone"));
      await settleAll();
    },
  };
}
