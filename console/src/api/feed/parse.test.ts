import { expect, test } from "vitest";
import { frameReader } from "./parse";

const TEXT = 'data: {"a":1}\n\nid: 4\ndata: {"a":2}\n\n: heartbeat\n\nid: 5\ndata: {"a":3}\n\n';

test("messages before a name belong to it, wherever the text is cut", () => {
  const whole = frameReader()(TEXT);
  expect(whole).toEqual([
    { id: "4", data: ['{"a":1}', '{"a":2}'] },
    { id: "5", data: ['{"a":3}'] },
  ]);
  for (let cut = 0; cut < TEXT.length; cut += 1) {
    const read = frameReader();
    expect([...read(TEXT.slice(0, cut)), ...read(TEXT.slice(cut))]).toEqual(whole);
  }
});
