/** Requests to the server. Every failure is an `ApiFailure`, with words to show. */
import type { ApiError, Responses, ShownProblem } from "./generated";

export type Route = keyof Responses;
export type GetRoute = Extract<Route, `GET ${string}`>;
export type Query = Record<string, string | number | boolean | string[] | null | undefined>;

export interface Arguments {
  /** Values of the `{names}` in the route. */
  path?: Record<string, string>;
  query?: Query;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** What the server refused, or that it did not answer (`status` 0). */
export class ApiFailure extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly correlationId = "",
    readonly problems: ShownProblem[] = [],
    readonly field: string | null = null,
  ) {
    super(message);
  }

  get isOffline(): boolean {
    return this.status === 0;
  }
}

/** Called when the server asks for a login. The shell shows it above what is typed. */
let onLoginNeeded: () => void = () => undefined;

export function whenLoginNeeded(show: () => void): void {
  onLoginNeeded = show;
}

/** Return the address of a route. */
export function address(route: Route, { path = {}, query = {} }: Arguments = {}): string {
  const bare = route.slice(route.indexOf(" ") + 1);
  const filled = bare.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = path[name];
    if (value === undefined) throw new Error(`${route} needs ${name}`);
    return encodeURIComponent(value);
  });
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) search.append(name, String(each));
  }
  const text = search.toString();
  return text ? `${filled}?${text}` : filled;
}

/** Send a request; return what the server answers, typed by its own document. */
export async function call<R extends Route>(route: R, args: Arguments = {}): Promise<Responses[R]> {
  const method = route.slice(0, route.indexOf(" "));
  const headers: Record<string, string> = { accept: "application/json", ...args.headers };
  if (args.body !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(address(route, args), {
      method,
      headers,
      body: args.body === undefined ? undefined : JSON.stringify(args.body),
      signal: args.signal,
      credentials: "same-origin",
    });
  } catch (error) {
    if (args.signal?.aborted) throw error;
    throw new ApiFailure(0, "offline", "The server does not answer. Is `infloop serve` running?");
  }
  if (response.ok) {
    const isJson = response.headers.get("content-type")?.startsWith("application/json");
    return (isJson ? await response.json() : null) as Responses[R];
  }
  const failure = await readFailure(response);
  if (failure.status === 401) onLoginNeeded();
  throw failure;
}

async function readFailure(response: Response): Promise<ApiFailure> {
  try {
    const told = (await response.json()) as ApiError;
    return new ApiFailure(
      response.status,
      told.error,
      told.message,
      told.correlationId,
      told.problems ?? [],
      told.field ?? null,
    );
  } catch {
    return new ApiFailure(response.status, "unreadable", `The server answered ${response.status}.`);
  }
}
