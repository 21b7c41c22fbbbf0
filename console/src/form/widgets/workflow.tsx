import { useApi } from "../../api/query";
import type { FieldProps } from "../context";
import { SuggestField } from "../SuggestField";

/** The id of a workflow. */
export function Workflow(props: FieldProps) {
  const { data } = useApi("GET /api/workflows");
  const suggestions = (data?.workflows ?? []).map(({ id, name }) => ({ value: id, label: name }));
  return <SuggestField {...props} suggestions={suggestions} />;
}
