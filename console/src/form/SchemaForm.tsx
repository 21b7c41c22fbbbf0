import { useMemo } from "react";
import type { OfferedReference, ShownProblem } from "../api/generated";
import { Control } from "./Control";
import { FormContext, type FormState } from "./context";
import { Fields } from "./Fields";
import css from "./form.module.css";
import type { LastOutputs } from "./references";
import type { Schema, Values } from "./schema";

interface Props {
  schema: Schema;
  values: Values;
  onChange: (values: Values) => void;
  /** What the paths of problems begin with. */
  path?: string;
  problems?: ShownProblem[];
  references?: OfferedReference[];
  lastOutputs?: LastOutputs;
  /** Dotted paths of the fields that are always shown; without any, all are. */
  main?: string[];
  variants?: string[];
}

const NONE: never[] = [];
const NOTHING = {};

/** A form for the values that a JSON Schema of the catalog describes. */
export function SchemaForm(props: Props) {
  const { schema, values, onChange, path = "config", main, variants } = props;
  const { problems = NONE, references = NONE, lastOutputs = NOTHING } = props;
  const state = useMemo<FormState>(
    () => ({ root: schema, references, lastOutputs, problems, Control }),
    [schema, references, lastOutputs, problems],
  );
  return (
    <FormContext value={state}>
      <div className={css.form}>
        <Fields
          path={path}
          schema={schema}
          values={values}
          main={main}
          variants={variants}
          onChange={onChange}
        />
      </div>
    </FormContext>
  );
}
