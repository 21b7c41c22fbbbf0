/**
 * The rows of a log, from the messages of a run.
 *
 * Text of one step is joined across its pieces, also when another step prints between them. A tool
 * call is one row that gets its result when it ends. A very long line is several rows, so that only
 * its last part is drawn again while it grows.
 */
import type { RunMessage } from "../api/feed/messages";
import type { StdoutChunk } from "../api/generated";
import { type EventText, eventText } from "./eventText";

export interface ToolPart {
  name: string;
  result: string;
  isDone: boolean;
  failed: boolean;
  endedAt: number;
}

export interface Row {
  id: string;
  seq: number;
  /** Which row of its message it is, for links. */
  at: number;
  time: number;
  path: string;
  kind: "stdout" | "stderr" | "tool" | "event";
  text: string;
  /** It goes on with the line above. */
  isPart: boolean;
  tool?: ToolPart;
  event?: EventText;
}

const LONGEST = 1_000;
const CALL = /^\[(?:tool|subagent): ([^\]]*)\] ?/;
/** What infloop says itself among the calls: `[worktree] /path`. */
const NOTICE = /^\[(?!tool\b|subagent\b)([a-z]+)\] ?/;
const RESULT = /^\[(?:tool|subagent) result\] ?/;

export class RowFold {
  readonly rows: Row[] = [];
  private readonly lines = new Map<string, Row>();
  private readonly calls = new Map<string, Row>();
  private seq = -1;
  private count = 0;

  add(message: RunMessage): void {
    if (message.type === "stdout_chunk") {
      if (message.stream === "tool") this.addTool(message);
      else this.addText(message, message.stream === "stderr" ? "stderr" : "stdout");
      return;
    }
    const event = eventText(message);
    if (!event) return;
    this.lines.delete(`stdout ${message.stepPath ?? ""}`);
    this.lines.delete(`stderr ${message.stepPath ?? ""}`);
    this.push(message, "event", event.text).event = event;
  }

  private addText(message: StdoutChunk, kind: "stdout" | "stderr"): void {
    const key = `${kind} ${message.stepPath ?? ""}`;
    const text = message.line;
    let line = this.lines.get(key);
    let from = 0;
    while (from < text.length) {
      const end = lineEnd(text, from);
      const piece = text.slice(from, end < 0 ? undefined : end);
      if (!line || line.text.length + piece.length > LONGEST) {
        line = this.addLong(message, kind, piece, line);
      } else {
        line.text += piece;
      }
      if (end < 0) break;
      line = undefined;
      from = end + (text[end] === "\r" && text[end + 1] === "\n" ? 2 : 1);
    }
    if (line) this.lines.set(key, line);
    else this.lines.delete(key);
  }

  /** Add a piece that begins a line, or that makes one too long; return the row that is open. */
  private addLong(message: StdoutChunk, kind: Row["kind"], piece: string, before?: Row): Row {
    let rest = piece;
    let isPart = before !== undefined;
    while (rest.length > LONGEST) {
      const space = rest.lastIndexOf(" ", LONGEST - 1) + 1;
      const cut = space > LONGEST / 2 ? space : LONGEST;
      this.push(message, kind, rest.slice(0, cut)).isPart = isPart;
      rest = rest.slice(cut);
      isPart = true;
    }
    const row = this.push(message, kind, rest);
    row.isPart = isPart;
    return row;
  }

  private addTool(message: StdoutChunk): void {
    const path = message.stepPath ?? "";
    const field = message.tool;
    const notice = field ? null : NOTICE.exec(message.line);
    if (notice) {
      const said = message.line.slice(notice[0].length).trimEnd();
      const text = `${notice[1]}: ${said}`;
      this.push(message, "event", text).event = { sign: "·", text, tone: "off" };
      return;
    }
    const named = CALL.exec(message.line);
    const isResult = field ? field.phase === "end" : RESULT.test(message.line);
    const key = field ? `${path} ${field.id}` : `${path} `;
    const call = this.calls.get(key);
    const text = message.line.replace(isResult ? RESULT : CALL, "").replace(/\r?\n$/, "");
    this.lines.delete(`stdout ${path}`);
    if (isResult && call?.tool && !(call.tool.isDone && !field)) {
      call.tool.result += text;
      call.tool.isDone = true;
      call.tool.failed ||= field?.failed ?? false;
      call.tool.endedAt = message.time;
    } else if (!isResult && field && call) {
      call.text += text;
    } else {
      const row = this.push(message, "tool", isResult ? "" : text);
      const name = field?.name ?? named?.[1] ?? "";
      const result = isResult ? text : "";
      const failed = field?.failed ?? false;
      row.tool = { name, result, isDone: isResult, failed, endedAt: message.time };
      if (field || named) this.calls.set(key, row);
    }
  }

  private push(message: RunMessage, kind: Row["kind"], text: string): Row {
    this.count = message.seq === this.seq ? this.count + 1 : 0;
    this.seq = message.seq;
    const row: Row = {
      id: `${message.seq}.${this.count}`,
      seq: message.seq,
      at: this.count,
      time: message.time,
      path: message.stepPath ?? "",
      kind,
      text,
      isPart: false,
    };
    this.rows.push(row);
    return row;
  }
}

/** The next end of a line; a lone carriage return ends one too, so that it hides nothing. */
function lineEnd(text: string, from: number): number {
  const newline = text.indexOf("\n", from);
  const carriage = text.indexOf("\r", from);
  if (carriage < 0) return newline;
  return newline < 0 ? carriage : Math.min(newline, carriage);
}
