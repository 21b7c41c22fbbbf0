/** Values of single nodes that change often: what changes redraws its own node and no other. */
import { useCallback, useSyncExternalStore } from "react";
import { same } from "../model/merge";

export interface PerNode<T> {
  get: (id: string) => T | undefined;
  subscribe: (id: string, listener: () => void) => () => void;
}

export class NodeValues<T> implements PerNode<T> {
  private values = new Map<string, T>();
  private readonly listeners = new Map<string, Set<() => void>>();

  get = (id: string): T | undefined => this.values.get(id);

  subscribe = (id: string, listener: () => void): (() => void) => {
    const all = this.listeners.get(id) ?? new Set();
    this.listeners.set(id, all.add(listener));
    return () => all.delete(listener);
  };

  set(id: string, value: T | undefined): void {
    if (same(this.values.get(id), value)) return;
    if (value === undefined) this.values.delete(id);
    else this.values.set(id, value);
    for (const listener of this.listeners.get(id) ?? []) listener();
  }

  /** Take these values and forget all others. */
  replace(values: ReadonlyMap<string, T>): void {
    for (const id of [...this.values.keys()]) if (!values.has(id)) this.set(id, undefined);
    for (const [id, value] of values) this.set(id, value);
  }
}

export function usePerNode<T>(values: PerNode<T> | undefined, id: string): T | undefined {
  const subscribe = useCallback(
    (listener: () => void) => values?.subscribe(id, listener) ?? (() => undefined),
    [values, id],
  );
  return useSyncExternalStore(subscribe, () => values?.get(id));
}
