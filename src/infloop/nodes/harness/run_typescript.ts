
// Appended to a script node's TypeScript: calls its `run` with the arguments given as JSON on stdin and
// writes the value it returns to descriptor 3, where printed text cannot forge it.
import { closeSync as __close, openSync as __open, readFileSync as __read, writeSync as __write } from "node:fs";

{
  const __result = __open("/dev/fd/3", "w");
  const __arguments = JSON.parse(__read("/dev/stdin", "utf8"));
  // @ts-ignore: `run` is the script's own
  if (typeof run !== "function") {
    throw new Error("the script must define a function named run");
  }
  // @ts-ignore: its parameters are the node's inputs
  const __value = await run(...__arguments);
  let __left = new TextEncoder().encode(JSON.stringify(__value === undefined ? null : __value));
  while (__left.length > 0) {
    __left = __left.subarray(__write(__result, __left));
  }
  __close(__result);
}
