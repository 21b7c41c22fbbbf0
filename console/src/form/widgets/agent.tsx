import { useApi } from "../../api/query";
import { chosenProvider } from "../chosenProvider";
import type { FieldProps } from "../context";
import { SuggestField } from "../SuggestField";
import { asText } from "../values";

/** A named agent, from those that the person or the directory beside it defines. */
export function Agent(props: FieldProps) {
  const provider = chosenProvider(props);
  const cwd = asText(props.parent.values.cwd);
  const { data } = useApi(
    "GET /api/providers/{provider_id}/agents",
    { path: { provider_id: provider }, query: { cwd: cwd.includes("{{") ? "" : cwd } },
    { enabled: provider !== "", staleTime: 60_000 },
  );
  const suggestions = (data?.agents ?? []).map(({ name, model, group }) => ({
    value: name,
    label: [group, model].filter(Boolean).join(", "),
  }));
  return <SuggestField {...props} suggestions={suggestions} />;
}
