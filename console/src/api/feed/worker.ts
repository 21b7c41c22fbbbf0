/** The shared worker: one for all tabs. */
import { Desk } from "./desk";
import type { ToWorker } from "./protocol";

const desk = new Desk();

self.addEventListener("connect", (event) => {
  const port = (event as MessageEvent).ports[0];
  if (!port) return;
  const take = desk.add((message) => port.postMessage(message));
  port.onmessage = (said: MessageEvent<ToWorker>) => take(said.data);
});
