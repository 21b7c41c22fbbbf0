import { useMemo } from "react";
import { useApi } from "../api/query";
import { type Kinds, kindsOf } from "../model/kinds";

/** The node types of the server; undefined until they are read. */
export function useKinds(): Kinds | undefined {
  const catalog = useApi("GET /api/catalog", {}, { staleTime: Number.POSITIVE_INFINITY });
  const nodes = catalog.data?.nodes;
  return useMemo(() => (nodes ? kindsOf(nodes) : undefined), [nodes]);
}
