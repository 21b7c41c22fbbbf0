import type { HTMLAttributes, Ref } from "react";

interface Props extends HTMLAttributes<HTMLDivElement> {
  ref?: Ref<HTMLDivElement>;
}

/** A box that scrolls: it takes the focus, so that the keyboard scrolls it too. */
export function Scroll(props: Props) {
  // biome-ignore lint/a11y/noNoninteractiveTabindex: see above
  return <div tabIndex={0} {...props} />;
}
