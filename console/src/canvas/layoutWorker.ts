/** Lays out large workflows beside the page, which stays usable meanwhile. */
import { type Kind, kindsOf } from "../model/kinds";
import { tidied } from "../model/layout";
import type { Size, Workflow } from "../model/workflow";

export interface LayoutTask {
  workflow: Workflow;
  kinds: readonly Kind[];
  room: Size;
}

self.onmessage = ({ data }: MessageEvent<LayoutTask>) => {
  self.postMessage(tidied(data.workflow, kindsOf(data.kinds), data.room));
};
