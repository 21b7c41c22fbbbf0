import type { Workflow } from "../workflow";
import { adopt } from "./adopt";
import type { Command, CommandOf } from "./command";
import { group, ungroup } from "./grouping";
import { add, arrange, configure, connect, label, move, remove, rename } from "./simple";

const EDITS: {
  [Name in Command["do"]]: (workflow: Workflow, command: CommandOf<Name>) => Workflow;
} = {
  add,
  remove,
  move,
  arrange,
  adopt,
  configure,
  label,
  rename,
  connect,
  group,
  ungroup,
  replace: (_, command) => command.workflow,
};

/** Return the edited workflow; the same one if the command changes nothing. */
export function edit(workflow: Workflow, command: Command): Workflow {
  const apply = EDITS[command.do] as (workflow: Workflow, command: Command) => Workflow;
  return apply(workflow, command);
}
