/** A small map of the whole graph. It is painted, not built of elements: it has as many shapes as
 * there are nodes, and follows every movement. */
import { type ReactFlowState, useReactFlow, useStoreApi } from "@xyflow/react";
import { type PointerEvent, useEffect, useRef } from "react";
import type { FlowEdge, FlowNode } from "../model/flow";
import css from "./GraphView.module.css";

const WIDTH = 140;
const HEIGHT = 96;
const MARGIN = 4;
const AT_MOST_MS = 100;

type State = ReactFlowState<FlowNode, FlowEdge>;

interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** Not there while all of the graph can be seen. */
export function Overview() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const store = useStoreApi<FlowNode, FlowEdge>();
  const { getZoom, setCenter } = useReactFlow();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = () => {
      timer = undefined;
      if (canvas.current) paint(canvas.current, store.getState());
    };
    const changed = () => {
      timer ??= setTimeout(draw, AT_MOST_MS);
    };
    draw();
    const stop = store.subscribe(changed);
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [store]);
  const look = (event: PointerEvent<HTMLCanvasElement>) => {
    if (!event.buttons) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    const corner = event.currentTarget.getBoundingClientRect();
    const { box, scale } = mapped(store.getState());
    const x = box.left + (event.clientX - corner.left) / scale;
    const y = box.top + (event.clientY - corner.top) / scale;
    void setCenter(x, y, { zoom: getZoom() });
  };
  return (
    <canvas
      ref={canvas}
      role="img"
      aria-label="Overview"
      className={css.overview}
      width={WIDTH * devicePixelRatio}
      height={HEIGHT * devicePixelRatio}
      onPointerDown={look}
      onPointerMove={look}
    />
  );
}

function boxOf(node: FlowNode, { nodeLookup }: State): Box {
  const at = nodeLookup.get(node.id)?.internals.positionAbsolute ?? node.position;
  return { left: at.x, top: at.y, right: at.x + node.width, bottom: at.y + node.height };
}

/** What the view shows of the graph. */
function viewOf({ transform: [x, y, zoom], width, height }: State): Box {
  return {
    left: -x / zoom,
    top: -y / zoom,
    right: (width - x) / zoom,
    bottom: (height - y) / zoom,
  };
}

function around(a: Box, b: Box): Box {
  return {
    left: Math.min(a.left, b.left),
    top: Math.min(a.top, b.top),
    right: Math.max(a.right, b.right),
    bottom: Math.max(a.bottom, b.bottom),
  };
}

/** Return what is on the map, and its scale. `isWhole`: the view shows all of it. */
function mapped(state: State): { box: Box; scale: number; isWhole: boolean } {
  const view = viewOf(state);
  const all = state.nodes.reduce((box, node) => around(box, boxOf(node, state)), view);
  const [wide, high] = [all.right - all.left, all.bottom - all.top];
  const scale = Math.min((WIDTH - 2 * MARGIN) / wide, (HEIGHT - 2 * MARGIN) / high);
  const isWhole = wide * high === (view.right - view.left) * (view.bottom - view.top);
  // The rest of the map is shared by both sides.
  const left = all.left - (WIDTH / scale - wide) / 2;
  const top = all.top - (HEIGHT / scale - high) / 2;
  const box = { left, top, right: left + WIDTH / scale, bottom: top + HEIGHT / scale };
  return { box, scale, isWhole };
}

function paint(canvas: HTMLCanvasElement, state: State): void {
  const { box, scale, isWhole } = mapped(state);
  canvas.hidden = isWhole;
  const pen = canvas.getContext("2d");
  if (!pen || isWhole) return;
  const colors = getComputedStyle(canvas);
  const color = (name: string) => colors.getPropertyValue(name);
  const rectangle = ({ left, top, right, bottom }: Box): [number, number, number, number] => [
    (left - box.left) * scale,
    (top - box.top) * scale,
    Math.max(1, (right - left) * scale),
    Math.max(1, (bottom - top) * scale),
  ];
  pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  pen.fillStyle = color("--sunken");
  pen.fillRect(0, 0, WIDTH, HEIGHT);
  pen.fillStyle = color("--surface");
  pen.fillRect(...rectangle(viewOf(state)));
  pen.strokeStyle = color("--edge");
  for (const node of state.nodes) {
    pen.fillStyle = color(node.selected ? "--ink" : "--edge");
    const place = rectangle(boxOf(node, state));
    if (node.data.isFrame) pen.strokeRect(...place);
    else pen.fillRect(...place);
  }
}
