import type { FieldProps } from "../context";
import { TemplateField } from "../TemplateField";

/** A shell line; long ones are written on several lines. */
export function Shell(props: FieldProps) {
  return <TemplateField {...props} minLines={2} />;
}
