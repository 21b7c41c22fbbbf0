import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const css = readFileSync(new URL("./tokens.css", import.meta.url), "utf8");
const [light = "", dark = ""] = css.split(':root[data-theme="dark"]');
const STATES = ["run", "ok", "bad", "ask", "hold", "stall", "off", "out"];

function colours(part: string): Record<string, string> {
  return Object.fromEntries(
    [...part.matchAll(/--([\w-]+): (#\w{6})/g)].map(([, name, value]) => [name, value]),
  );
}

function luminance(colour: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5]
    .map((at) => Number.parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(one = "", other = ""): number {
  const [high = 0, low = 0] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

test.each([
  ["light", colours(light)],
  ["dark", { ...colours(light), ...colours(dark) }],
])("%s: text is readable on every ground", (_, colour) => {
  for (const ground of ["paper", "surface", "sunken"]) {
    for (const text of ["ink", "ink2", "ink3", ...STATES]) {
      expect(contrast(colour[text], colour[ground]), `${text} on ${ground}`).toBeGreaterThan(4.5);
    }
    expect(contrast(colour.edge, colour[ground]), `edge on ${ground}`).toBeGreaterThan(3);
  }
  for (const state of STATES) {
    expect(contrast(colour[state], colour[`${state}-t`]), state).toBeGreaterThan(4.5);
    expect(contrast(colour.ink, colour[`${state}-t`]), state).toBeGreaterThan(4.5);
  }
});
