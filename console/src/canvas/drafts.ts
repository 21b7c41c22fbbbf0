/** Unsaved work in the browser's own database. It survives a closed tab and a dead server.
 *
 * Each tab writes its own draft. A tab that opens a workflow takes over the newest draft that no
 * open tab writes to.
 */
import type { Workflow } from "../model/workflow";

export interface Draft {
  id: string;
  workflowId: string;
  tab: string;
  /** The server's document that the draft began with. */
  base: Workflow;
  document: Workflow;
  at: number;
}

const TAB = "infloop.tab";
let opened: Promise<IDBDatabase> | undefined;

function database(): Promise<IDBDatabase> {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("infloop", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("drafts", { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

async function within<T>(
  mode: IDBTransactionMode,
  use: (store: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  const store = (await database()).transaction("drafts", mode).objectStore("drafts");
  return new Promise((resolve, reject) => {
    const request = use(store);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** The name of this tab. A copy of a tab has its name, too, until it finds it taken. */
let tab: Promise<string> | undefined;

function tabName(): Promise<string> {
  tab ??= (async () => {
    const known = sessionStorage.getItem(TAB);
    const name =
      known && !(await writers()).has(known)
        ? known
        : crypto.getRandomValues(new Uint32Array(2)).join("-");
    sessionStorage.setItem(TAB, name);
    // The lock is held until the tab is closed. Without locks (plain HTTP) drafts are still kept.
    void navigator.locks?.request(`${TAB} ${name}`, () => new Promise(() => undefined));
    return name;
  })();
  return tab;
}

/** The tabs that are open now. */
async function writers(): Promise<Set<string>> {
  const state = await navigator.locks?.query();
  const names = (state?.held ?? []).map((lock) => lock.name ?? "");
  return new Set(
    names.filter((name) => name.startsWith(TAB)).map((name) => name.slice(TAB.length + 1)),
  );
}

export async function keepDraft(base: Workflow, document: Workflow): Promise<void> {
  const name = await tabName();
  const id = `${base.id} ${name}`;
  const draft: Draft = { id, workflowId: base.id, tab: name, base, document, at: Date.now() };
  await within("readwrite", (store) => store.put(draft));
}

export async function dropDraft(workflowId: string): Promise<void> {
  const name = await tabName();
  await within("readwrite", (store) => store.delete(`${workflowId} ${name}`));
}

/** Return the draft to go on with: this tab's own, or the newest that no open tab writes to. */
export async function takeDraft(workflowId: string): Promise<Draft | undefined> {
  const name = await tabName();
  const open = await writers();
  const all = await within("readonly", (store) => store.getAll() as IDBRequest<Draft[]>);
  const free = all
    .filter((draft) => draft.workflowId === workflowId)
    .filter((draft) => draft.tab === name || !open.has(draft.tab))
    .sort((a, b) => Number(b.tab === name) - Number(a.tab === name) || b.at - a.at);
  const found = free[0];
  if (found && found.tab !== name) {
    await keepDraft(found.base, found.document);
    await within("readwrite", (store) => store.delete(found.id));
  }
  return found;
}
