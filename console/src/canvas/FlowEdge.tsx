import { BaseEdge, type EdgeProps, getSmoothStepPath, Position } from "@xyflow/react";
import { memo, useContext } from "react";
import type { FlowEdge as FlowEdgeData } from "../model/flow";
import { ERROR_HANDLE } from "../model/kinds";
import { DEFAULT_HANDLE } from "../model/workflow";
import { edgePlace } from "./edgePlace";
import css from "./FlowEdge.module.css";
import { GraphContext } from "./graphContext";
import { usePerNode } from "./perNode";

const GAP = 16;

/** An edge, with its problem. A loop back and a wrapped line go between the rows. */
export const FlowEdge = memo((props: EdgeProps) => {
  const { problems } = useContext(GraphContext);
  const wrong = usePerNode(problems, edgePlace(props.id));
  const handle = String(props.sourceHandleId ?? DEFAULT_HANDLE);
  const { below, above } = props.data as FlowEdgeData["data"];
  const goesBack = props.targetX < props.sourceX + 2 * GAP && handle !== ERROR_HANDLE;
  // Between the two nodes if there is room, and else below both.
  const [from, to] = [props.sourceY + below, props.targetY - above];
  const centerY = to > from ? (from + to) / 2 : Math.max(from, props.targetY + above) + GAP;
  const [path, labelX, labelY] = getSmoothStepPath({
    sourceX: props.sourceX,
    sourceY: props.sourceY,
    targetX: props.targetX,
    targetY: props.targetY,
    sourcePosition: props.sourcePosition,
    targetPosition: props.targetPosition ?? Position.Left,
    borderRadius: 4,
    offset: GAP,
    ...(goesBack ? { centerY } : {}),
  });
  return (
    <>
      {wrong && <title>{wrong.map((each) => each.message).join("\n")}</title>}
      <BaseEdge
        id={props.id}
        path={path}
        labelX={labelX}
        labelY={labelY}
        label={wrong ? "▲" : undefined}
        labelShowBg
        markerEnd={props.markerEnd}
        interactionWidth={20}
        className={css.edge}
        data-handle={handle}
        data-selected={props.selected || undefined}
        data-problem={wrong ? true : undefined}
      />
    </>
  );
});

export const EDGE_VIEWS = { flow: FlowEdge };
