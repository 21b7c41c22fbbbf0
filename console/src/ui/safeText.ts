/** Text of agents, as text: nothing in it hides, moves or reverses what stands around it. */

// C0 and C1 controls but tab and newline, bidi controls, invisible and tag characters.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

/** Remove terminal escapes; write every other hidden character as its code. */
export function safeText(text: string): string {
  return text
    .replace(/\r\n/g, "\n")
    .replace(ANSI, "")
    .replace(HIDDEN, (each) => `\\u{${(each.codePointAt(0) ?? 0).toString(16)}}`);
}
