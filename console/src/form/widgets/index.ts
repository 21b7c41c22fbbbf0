/** The widgets by name. A schema names one, or its type does; node types are never asked. */
import type { ComponentType } from "react";
import type { FieldProps } from "../context";
import { Agent } from "./agent";
import { Alternatives } from "./alternatives";
import { Checkbox } from "./checkbox";
import { Code } from "./code";
import { Directory } from "./directory";
import { Duration } from "./duration";
import { Group } from "./group";
import { JsonField } from "./json";
import { Line } from "./line";
import { List } from "./list";
import { NumberField } from "./number";
import { Profile } from "./profile";
import { Provider } from "./provider";
import { Select } from "./select";
import { Shell } from "./shell";
import { Text } from "./text";
import { Variables } from "./variables";
import { Workflow } from "./workflow";

export const WIDGETS: Record<string, ComponentType<FieldProps>> = {
  agent: Agent,
  alternatives: Alternatives,
  checkbox: Checkbox,
  code: Code,
  directory: Directory,
  duration: Duration,
  group: Group,
  json: JsonField,
  line: Line,
  list: List,
  number: NumberField,
  pattern: Line,
  profile: Profile,
  provider: Provider,
  select: Select,
  shell: Shell,
  text: Text,
  variables: Variables,
  workflow: Workflow,
};
