import { useEffect } from "react";
import { isTyping } from "../../app/keys";
import { copyText, paste, remove } from "../../canvas/actions";
import { useEditor } from "../../canvas/editor";

/** Copy, cut and paste nodes as text, by the browser's own events: no permission is asked for. */
export function useClipboard(): void {
  const editor = useEditor();
  useEffect(() => {
    const isOurs = (event: ClipboardEvent) =>
      !isTyping(event.target as Element) && !document.querySelector("dialog[open]");
    const copy = (event: ClipboardEvent) => {
      const isText = !getSelection()?.isCollapsed;
      const text = copyText(editor);
      if (!isOurs(event) || isText || !text) return;
      event.preventDefault();
      event.clipboardData?.setData("text/plain", text);
      if (event.type === "cut") remove(editor);
    };
    const insert = (event: ClipboardEvent) => {
      if (!isOurs(event)) return;
      if (paste(editor, event.clipboardData?.getData("text/plain") ?? "")) event.preventDefault();
    };
    document.addEventListener("copy", copy);
    document.addEventListener("cut", copy);
    document.addEventListener("paste", insert);
    return () => {
      document.removeEventListener("copy", copy);
      document.removeEventListener("cut", copy);
      document.removeEventListener("paste", insert);
    };
  }, [editor]);
}
