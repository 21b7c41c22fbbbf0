import { createContext } from "react";
import type { ShownProblem } from "../api/generated";
import type { Round } from "../ui/Tally/Tally";
import type { PerNode } from "./perNode";

/** How a node did in a run. */
export interface NodeState {
  /** A word of `StateMark`: `running`, `failed`, … */
  state: string;
  /** Of a loop: its rounds so far. */
  rounds?: Round[];
  /** Of a loop: the round that the nodes inside show, from 1. */
  round?: number;
  /** A short text beside the state: a duration, a cost. */
  detail?: string;
}

export type NodeStates = PerNode<NodeState>;

/** What nodes read for themselves. The object stays the same while a graph is shown. */
export interface GraphFacts {
  states?: NodeStates;
  problems?: PerNode<ShownProblem[]>;
  /** The one node that the Tab key reaches. */
  current: PerNode<boolean>;
  canEdit: boolean;
  /** Nodes are only their names, and nothing can be connected. */
  isFar: boolean;
  /** Show another round of a loop; without it rounds cannot be chosen. */
  onRound?: (id: string, round: number) => void;
  /** Fold a frame or open it; without it frames cannot be folded. */
  onFold?: (id: string) => void;
}

export const GraphContext = createContext<GraphFacts>({
  current: { get: () => undefined, subscribe: () => () => undefined },
  canEdit: false,
  isFar: false,
});
