import { useState } from "react";
import type { Json, NodeType, OfferedReference, ShownProblem } from "../api/generated";
import { problemText } from "../api/problems";
import { Field } from "../ui/Field/Field";
import { safeText } from "../ui/safeText";
import { isAt } from "./context";
import css from "./form.module.css";
import type { LastOutputs } from "./references";
import { SchemaForm } from "./SchemaForm";
import type { Schema, Values } from "./schema";
import { asValues } from "./values";

export interface FormNode {
  id: string;
  type: string;
  label?: string;
  config?: { [key: string]: Json };
}

interface Props {
  node: FormNode;
  nodeType: NodeType;
  /** Those of this node. */
  problems: ShownProblem[];
  /** What `{{` may name at this node. */
  references: OfferedReference[];
  lastOutputs?: LastOutputs;
  onChange: (config: Values) => void;
  onRename: (id: string) => void;
  onLabel?: (label: string) => void;
}

/** The settings of a node, made from the catalog's description of its type. */
export function NodeForm(props: Props) {
  const { node, nodeType, problems, references, lastOutputs, onChange, onRename, onLabel } = props;
  const schema = nodeType.config as Schema;
  const config = node.config ?? {};
  const main = [...Object.keys(asValues(nodeType.new.config)), ...nodeType.summary];
  const fields = [...Object.keys(schema.properties ?? {}).map((key) => `config.${key}`), "id"];
  const others = problems.filter((each) => !fields.some((field) => isAt(each, field)));
  const ofId = problems.find((each) => each.field === "id");
  return (
    <div className={css.form}>
      <p className={css.intro}>{nodeType.description}</p>
      {others.length > 0 && (
        <ul className={css.problems} aria-label="Problems of this node">
          {others.map((each) => (
            <li
              key={`${each.place}${each.message}`}
              data-warning={each.severity === "warning" || undefined}
            >
              {safeText(problemText(each))}
            </li>
          ))}
        </ul>
      )}
      <IdField key={node.id} id={node.id} problem={ofId && problemText(ofId)} onRename={onRename} />
      {onLabel && (
        <Field label="Label" hint="What is shown instead of the id.">
          {(control) => (
            <input
              {...control}
              autoComplete="off"
              value={node.label ?? ""}
              placeholder={node.id}
              onChange={(event) => onLabel(event.target.value)}
            />
          )}
        </Field>
      )}
      <SchemaForm
        key={`${node.type} ${node.id}`}
        schema={schema}
        values={config}
        problems={problems}
        references={references}
        lastOutputs={lastOutputs}
        main={main}
        variants={nodeType.variants}
        onChange={onChange}
      />
    </div>
  );
}

interface IdProps {
  id: string;
  problem?: string;
  onRename: (id: string) => void;
}

/** The id changes when it is complete, because every reference to the node changes with it. */
function IdField({ id, problem, onRename }: IdProps) {
  const [typed, setTyped] = useState(id);
  const isUsable = /^[A-Za-z0-9_-]+$/.test(typed);
  const wrong = isUsable ? problem : "Use letters, digits, - and _.";
  const rename = () => {
    if (isUsable && typed !== id) onRename(typed);
  };
  return (
    <Field label="Id" hint="References use it." problem={wrong}>
      {(control) => (
        <input
          {...control}
          className={css.code}
          autoComplete="off"
          spellCheck={false}
          value={typed}
          aria-invalid={wrong ? true : undefined}
          onChange={(event) => setTyped(event.target.value)}
          onBlur={rename}
          onKeyDown={(event) => event.key === "Enter" && rename()}
        />
      )}
    </Field>
  );
}
