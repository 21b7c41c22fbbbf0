/** Events of a run as one line of its log. Those that say nothing new to a reader have none. */
import type { RunMessage } from "../api/feed/messages";
import { clock, duration } from "../ui/format";
import type { Tone } from "../ui/StateMark/states";

export interface EventText {
  sign: string;
  text: string;
  tone: Tone;
}

type Of<T extends RunMessage["type"]> = Extract<RunMessage, { type: T }>;
type Writers = { [T in RunMessage["type"]]?: (message: Of<T>) => EventText };

const WRITERS: Writers = {
  run_started: (message) => ({
    sign: "▸",
    text: `run of ${message.workflowName} began (isolation ${message.isolation}, egress ${message.egress})`,
    tone: "off",
  }),
  run_resumed: (message) => ({
    sign: "▸",
    text: `run was resumed (isolation ${message.isolation}, egress ${message.egress})`,
    tone: "off",
  }),
  run_finished: (message) => ({
    sign: "■",
    text: `run ${message.status}${message.errorMessage ? `: ${message.errorMessage}` : ""}`,
    tone: message.status === "succeeded" ? "ok" : message.status === "failed" ? "bad" : "off",
  }),
  run_stop_requested: (message) => ({ sign: "⊘", text: `stop: ${message.reason}`, tone: "off" }),
  run_budget_exceeded: (message) => ({ sign: "‖", text: message.reason, tone: "hold" }),
  run_guard_failed: (message) => ({ sign: "✕", text: message.reason, tone: "bad" }),
  node_started: (message) => ({
    sign: "▸",
    text: `${message.stepPath ?? message.nodeId} (${message.nodeType})`,
    tone: "off",
  }),
  node_finished: (message) => ({
    sign: "◂",
    text: `${message.stepPath ?? message.nodeId} left by ${message.branch || "nothing"} after ${duration(message.durationMs)}`,
    tone: "off",
  }),
  node_waiting: (message) => ({
    sign: "◷",
    text: `waits until ${clock(message.until)}: ${message.reason}`,
    tone: "hold",
  }),
  error: (message) => ({ sign: "✕", text: message.message, tone: "bad" }),
  template_warning: (message) => ({
    sign: "!",
    text: `{{${message.missingKey}}} in ${message.field} does not exist, so it is empty`,
    tone: "stall",
  }),
  notice: (message) => ({
    sign: message.level === "info" ? "·" : "!",
    text: message.message,
    tone: message.level === "error" ? "bad" : message.level === "warning" ? "stall" : "off",
  }),
};

export function eventText(message: RunMessage): EventText | null {
  const write = WRITERS[message.type] as ((message: RunMessage) => EventText) | undefined;
  return write?.(message) ?? null;
}
