/** What tabs and the worker say to each other. */
import type { Batch, Link } from "./feed";

export type ToWorker =
  | { do: "open"; topic: string; after: number }
  | { do: "close"; topic: string }
  | { do: "ask"; positions: Record<string, number> }
  | { do: "leave" };

export type FromWorker =
  | { say: "changed" }
  | { say: "answer"; batches: Record<string, Batch>; link: Link };
