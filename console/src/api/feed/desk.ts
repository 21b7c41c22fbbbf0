/** Serves the tabs of one browser from one feed: in a shared worker, or in a tab without one. */
import { Feed } from "./feed";
import type { FromWorker, ToWorker } from "./protocol";

export class Desk {
  private readonly tabs = new Set<Tab>();
  private readonly feed = new Feed(() => {
    for (const tab of this.tabs) tab.tell();
  });

  /** Serve one tab; return what takes its messages. */
  add(send: (message: FromWorker) => void): (message: ToWorker) => void {
    const tab = new Tab(send);
    this.tabs.add(tab);
    return (message) => this.handle(tab, message);
  }

  private handle(tab: Tab, message: ToWorker): void {
    if (message.do === "open") {
      this.feed.open(message.topic, message.after);
      tab.topics.push(message.topic);
    } else if (message.do === "close") {
      const at = tab.topics.indexOf(message.topic);
      if (at >= 0) tab.topics.splice(at, 1);
      this.feed.close(message.topic);
    } else if (message.do === "ask") {
      const asked = Object.entries(message.positions);
      const batches = Object.fromEntries(
        asked.map(([topic, position]) => [topic, this.feed.take(topic, position)]),
      );
      tab.answer({ say: "answer", batches, link: { ...this.feed.link } });
    } else {
      for (const topic of tab.topics) this.feed.close(topic);
      this.tabs.delete(tab);
    }
  }
}

/** One tab. It is told once that there is something new, and again only after it has asked. */
class Tab {
  readonly topics: string[] = [];
  private told = false;

  constructor(private readonly send: (message: FromWorker) => void) {}

  tell(): void {
    if (this.told) return;
    this.told = true;
    this.send({ say: "changed" });
  }

  answer(message: FromWorker): void {
    this.told = false;
    this.send(message);
  }
}
