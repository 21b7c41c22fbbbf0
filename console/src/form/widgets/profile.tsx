import { useApi } from "../../api/query";
import { chosenProvider } from "../chosenProvider";
import type { FieldProps } from "../context";
import { SuggestField } from "../SuggestField";

/** A model, from those of the provider that is chosen beside it. */
export function Profile(props: FieldProps) {
  const provider = chosenProvider(props);
  const { data } = useApi(
    "GET /api/providers/{provider_id}/profiles",
    { path: { provider_id: provider } },
    { enabled: provider !== "", staleTime: 60_000 },
  );
  const suggestions = (data?.profiles ?? []).map(({ id, label }) => ({ value: id, label }));
  return <SuggestField {...props} suggestions={suggestions} />;
}
