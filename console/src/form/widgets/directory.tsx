import { useState } from "react";
import { Button } from "../../ui/Button/Button";
import type { FieldProps } from "../context";
import { DirectoryDialog } from "../DirectoryDialog";
import { SuggestField } from "../SuggestField";
import { asText } from "../values";

/** A directory of the server's machine. */
export function Directory(props: FieldProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <SuggestField
        {...props}
        suggestions={[]}
        side={
          <Button aria-label={`Choose ${props.label}`} onClick={() => setOpen(true)}>
            Choose…
          </Button>
        }
      />
      {isOpen && (
        <DirectoryDialog
          start={asText(props.value)}
          onClose={() => setOpen(false)}
          onChoose={(path) => {
            setOpen(false);
            props.onChange(path);
          }}
        />
      )}
    </>
  );
}
