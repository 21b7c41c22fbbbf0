import { useEffect, useState } from "react";
import { call } from "../api/client";
import type { OfferedReference, ShownProblem } from "../api/generated";
import { NodeForm } from "../form/NodeForm";
import { findNode, type JsonObject, type WorkflowNode } from "../model/workflow";
import { Button } from "../ui/Button/Button";
import { useDocument, useEditor, useEditorState } from "./editor";
import css from "./NodePanel.module.css";
import { usePerNode } from "./perNode";

interface Props {
  node: string;
  lastOutputs?: Record<string, JsonObject>;
  onClose: () => void;
}

const NONE: ShownProblem[] = [];

/** The settings of the chosen node. */
export function NodePanel({ node: id, lastOutputs, onClose }: Props) {
  const editor = useEditor();
  const workflow = useDocument();
  const kinds = useEditorState((state) => state.kinds);
  const node = findNode(workflow, id);
  const problems = usePerNode(editor.problemsAt, id) ?? NONE;
  const references = useReferences(id);
  if (!node) return null;
  const { label, ...rest } = node;
  const shown: Omit<WorkflowNode, "label"> & { label?: string } = label ? { ...rest, label } : rest;
  return (
    <aside aria-label="Node settings" className={css.panel}>
      <header className={css.header}>
        <h2 className={css.title}>
          <span className={css.stamp}>{kinds.of(node.type).stamp}</span> {label || id}
        </h2>
        <Button look="plain" aria-label="Close settings" onClick={onClose}>
          ✕
        </Button>
      </header>
      <div className={css.content}>
        <NodeForm
          node={shown}
          nodeType={kinds.of(node.type)}
          problems={problems}
          references={references}
          lastOutputs={lastOutputs}
          onChange={(config) =>
            editor.run({ do: "configure", node: id, config }, `${id} ${changedKey(node, config)}`)
          }
          onLabel={(text) => editor.run({ do: "label", node: id, label: text }, `${id} label`)}
          onRename={(to) => {
            editor.run({ do: "rename", node: id, to });
            if (findNode(editor.getState().history.present, to)) editor.select([to]);
          }}
        />
      </div>
    </aside>
  );
}

/** The part of the configuration that an edit changed: typing there is undone as one. */
function changedKey(node: WorkflowNode, config: JsonObject): string {
  const before = node.config ?? {};
  const keys = new Set([...Object.keys(before), ...Object.keys(config)]);
  return [...keys].filter((key) => before[key] !== config[key]).join(" ");
}

/** What `{{` may name at a node; read again when the graph around it changes. */
function useReferences(id: string): OfferedReference[] {
  const editor = useEditor();
  const checked = useEditorState((state) => state.checked);
  const [references, setReferences] = useState<OfferedReference[]>([]);
  useEffect(() => {
    const asked = new AbortController();
    const now = editor.getState().history.present;
    const body = checked && findNode(checked, id) ? checked : now;
    call("POST /api/workflows/references", { query: { node: id }, body, signal: asked.signal })
      .then((answer) => setReferences(answer.references))
      .catch(() => undefined); // offline, or unreadable: the check says so
    return () => asked.abort();
  }, [editor, id, checked]);
  return references;
}
