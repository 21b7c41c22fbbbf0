import { Button } from "../Button/Button";
import { complain, say } from "../Toast/toast";

/** A button that copies a text. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => say("Copied."),
      () => complain("The browser does not permit copying here."),
    );
  return <Button onClick={() => void copy()}>{label}</Button>;
}
