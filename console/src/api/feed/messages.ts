/** The messages of the server's streams. Types that are not listed here are ignored. */
import type { DevLoopList, EventPage, StdoutChunk } from "../generated";

export type RunMessage = EventPage["events"][number];

/** The first message of the stream of all runs, and again after messages were missed. */
export interface Snapshot {
  type: "state_snapshot";
  live: string[];
  missed: number;
}

/** Something changed in the queue or among the approvals. */
export interface Change {
  type:
    | "trigger_enqueued"
    | "trigger_started"
    | "trigger_removed"
    | "trigger_held"
    | "approval_asked"
    | "approval_answered";
  runId: string;
  workflowId: string;
}

/** The development loops as they are now. */
export type DevLoops = DevLoopList & { type: "dev_loops" };

/** What a process of a development loop wrote; `isWhole`: it begins anew. */
export interface DevOutput {
  type: "dev_log";
  text: string;
  isWhole: boolean;
}

export type Message = RunMessage | Snapshot | Change | DevLoops | DevOutput;

/** About how much memory a message takes, in characters. */
export function sizeOf(message: Message): number {
  if (isOutput(message)) return message.line.length;
  return message.type === "dev_log" ? message.text.length : 200;
}

export function isOutput(message: Message): message is StdoutChunk {
  return message.type === "stdout_chunk";
}

export function isOfRun(message: Message): message is RunMessage {
  return "seq" in message;
}
