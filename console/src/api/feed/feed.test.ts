import { afterEach, expect, test, vi } from "vitest";
import { Feed } from "./feed";
import type { StdoutChunk } from "./messages.test-data";
import { chunk, streamOf } from "./messages.test-data";

afterEach(() => vi.unstubAllGlobals());

test("output that nobody has seen is merged, and a second tab gets all of it", async () => {
  const stream = streamOf();
  vi.stubGlobal("fetch", stream.fetch);
  const feed = new Feed(() => undefined);
  feed.open("run-1");
  await stream.write([chunk(1, "a"), chunk(2, "b"), chunk(3, "c", "other")]);
  const first = feed.take("run-1", 0);
  expect(first.messages.map((each) => (each as StdoutChunk).line)).toEqual(["ab", "c"]);
  await stream.write([chunk(4, "d", "other")]);
  const second = feed.take("run-1", first.next);
  expect(second.messages.map((each) => (each as StdoutChunk).line)).toEqual(["d"]);
  expect(feed.take("run-1", 0).messages).toHaveLength(3);
});

test("a tab that wants more than was read gets the topic anew", async () => {
  const stream = streamOf();
  vi.stubGlobal("fetch", stream.fetch);
  const feed = new Feed(() => undefined);
  feed.open("run-1", 10);
  await stream.write([chunk(11, "x")]);
  const before = feed.take("run-1", 0).generation;
  feed.open("run-1", 0);
  expect(stream.asked.at(-1)).toEqual({});
  expect(feed.take("run-1", 0).generation).toBeGreaterThan(before);
});

test("a lost connection is told, and reading goes on after the last frame", async () => {
  vi.useFakeTimers();
  const stream = streamOf();
  vi.stubGlobal("fetch", stream.fetch);
  const feed = new Feed(() => undefined);
  feed.open("run-1");
  await stream.write([chunk(7, "x")]);
  await stream.fail();
  expect(feed.link.online).toBe(false);
  await vi.advanceTimersByTimeAsync(600);
  expect(stream.asked.at(-1)).toEqual({ "last-event-id": "7" });
  expect(feed.link.online).toBe(true);
  vi.useRealTimers();
});
