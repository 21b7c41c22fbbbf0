import { expect, test } from "vitest";
import { portsText, readPorts } from "./ports";

test("ports are read as they are written", () => {
  expect(readPorts("8642\n8643 my model, 80\n\n")).toEqual([
    8642,
    { port: 8643, profile: "my model" },
    80,
  ]);
  expect(portsText([{ port: 8642 }, { port: 80, profile: "m" }])).toBe("8642\n80 m");
});

test.each(["x", "0", "70000", "1.5", "-1"])("%s is no port", (text) => {
  expect(() => readPorts(text)).toThrow("does not begin with a port");
});
