/** Reading from the server inside components: cached, refreshed, typed by the route. */
import {
  QueryClient,
  type UseQueryOptions,
  type UseQueryResult,
  useQuery,
} from "@tanstack/react-query";
import { type ApiFailure, type Arguments, call, type GetRoute } from "./client";
import type { Responses } from "./generated";

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      retry: (count, error) => (error as ApiFailure).status === 0 && count < 8,
      retryDelay: (count) => Math.min(15_000, 500 * 2 ** count),
      refetchOnWindowFocus: true,
    },
  },
});

type Options<R extends GetRoute> = Omit<
  UseQueryOptions<Responses[R], ApiFailure>,
  "queryKey" | "queryFn"
>;

/** Read a route; `args` is part of the cache's key. */
export function useApi<R extends GetRoute>(
  route: R,
  args: Omit<Arguments, "body" | "signal"> = {},
  options: Options<R> = {},
): UseQueryResult<Responses[R], ApiFailure> {
  return useQuery<Responses[R], ApiFailure>({
    queryKey: [route, args.path ?? {}, args.query ?? {}],
    queryFn: ({ signal }) => call(route, { ...args, signal }),
    ...options,
  });
}

/** Read these routes again, wherever they are shown. */
export function refresh(...routes: GetRoute[]): void {
  for (const route of routes) void queryClient.invalidateQueries({ queryKey: [route] });
}
