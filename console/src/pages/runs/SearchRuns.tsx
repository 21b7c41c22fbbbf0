import { useEffect, useState } from "react";
import css from "./Runs.module.css";

const PAUSE_MS = 250;

/** A field whose text is searched for once nobody types. */
export function SearchRuns({
  value,
  onSearch,
}: {
  value: string;
  onSearch: (text: string) => void;
}) {
  const [text, setText] = useState(value);
  const [shown, setShown] = useState(value);
  if (shown !== value) {
    setShown(value);
    setText(value);
  }
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onSearch(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text, value, onSearch]);
  return (
    <input
      type="search"
      aria-label="Search runs"
      placeholder="Search runs"
      className={css.search}
      value={text}
      onChange={(event) => setText(event.target.value)}
    />
  );
}
