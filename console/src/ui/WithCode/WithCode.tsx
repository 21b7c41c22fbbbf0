import { Fragment } from "react";

/** A text of the documentation: what stands between backticks is code. */
export function WithCode({ text }: { text: string }) {
  return text.split("`").map((part, at) => {
    const key = `${at} ${part}`;
    return at % 2 ? <code key={key}>{part}</code> : <Fragment key={key}>{part}</Fragment>;
  });
}
