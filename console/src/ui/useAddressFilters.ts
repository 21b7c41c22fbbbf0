import { useSearchParams } from "wouter";

/** Filters that are kept in the address, so that they can be sent and gone back to. */
export function useAddressFilters<N extends string>(
  ...names: N[]
): [Record<N, string>, (name: N, value: string) => void] {
  const [search, setSearch] = useSearchParams();
  const values = Object.fromEntries(names.map((name) => [name, search.get(name) ?? ""]));
  const set = (name: N, value: string) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        if (value) next.set(name, value);
        else next.delete(name);
        return next;
      },
      { replace: true },
    );
  return [values as Record<N, string>, set];
}
