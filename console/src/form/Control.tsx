import type { FieldProps } from "./context";
import { widgetOf } from "./schema";
import { WIDGETS } from "./widgets";

/** A field, drawn by the widget that its schema asks for. */
export function Control(props: FieldProps) {
  const Widget = WIDGETS[widgetOf(props.schema, (name) => name in WIDGETS)];
  return Widget ? <Widget {...props} /> : null;
}
