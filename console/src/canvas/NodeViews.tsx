/** Nodes as they are drawn: a card, a frame around other nodes, a note. */
import { Handle, type HandleProps, Position } from "@xyflow/react";
import { type ComponentProps, memo, useContext } from "react";
import { type FlowData, TARGET_HANDLE } from "../model/flow";
import { ERROR_HANDLE } from "../model/kinds";
import { handleTop } from "../model/sizes";
import { StateMark } from "../ui/StateMark/StateMark";
import { lookOf } from "../ui/StateMark/states";
import { type Round, Tally } from "../ui/Tally/Tally";
import { GraphContext } from "./graphContext";
import css from "./NodeViews.module.css";
import { usePerNode } from "./perNode";

interface Props {
  id: string;
  data: FlowData;
  selected?: boolean;
  width?: number;
  height?: number;
}

/** What each kind of drawn node shares: its name, state, problems, and how it is reached. */
function useNode({ id, data, selected }: Props) {
  const { states, problems, current } = useContext(GraphContext);
  const state = usePerNode(states, id);
  const wrong = usePerNode(problems, id);
  const isCurrent = usePerNode(current, id);
  const look = state && lookOf(state.state);
  const isBad = wrong?.some((each) => each.severity === "error");
  const words = [
    data.name === id ? id : `${data.name} (${id})`,
    data.kind.type,
    look?.word,
    wrong?.length ? `${wrong.length} ${wrong.length === 1 ? "problem" : "problems"}` : "",
  ];
  const attributes = {
    role: "group",
    "aria-label": words.filter(Boolean).join(", "),
    "aria-current": selected || undefined,
    tabIndex: isCurrent ? 0 : -1,
    "data-node": id,
    "data-selected": selected || undefined,
    "data-tone": look?.tone,
  };
  const marks = (
    <>
      {wrong?.length ? (
        <span
          className={css.problem}
          data-bad={isBad || undefined}
          title={wrong.map((each) => `${each.message} ${each.hint}`).join("\n")}
        >
          ▲
        </span>
      ) : null}
      {state && <StateMark state={state.state} short />}
    </>
  );
  return { attributes, marks, state };
}

function Handles({ data, height = 0, width = 0 }: Props) {
  const { canEdit, isFar } = useContext(GraphContext);
  const top = (at: number, of: number) => handleTop({ width, height }, at, of, data.isFrame);
  // From far away nothing is connected: edges only need to know where they begin and end.
  const One = isFar ? Anchor : Handle;
  return (
    <>
      {!data.kind.isStart && (
        <One
          type="target"
          id={TARGET_HANDLE}
          position={Position.Left}
          className={css.handle}
          style={{ top: top(0, 1) }}
          isConnectable={canEdit}
        />
      )}
      {data.handles.map((handle, at) => (
        <One
          key={handle}
          type="source"
          id={handle}
          position={Position.Right}
          className={css.handle}
          style={{ top: top(at, data.handles.length) }}
          isConnectable={canEdit}
          title={handle}
        />
      ))}
      {data.hasError && (
        <One
          type="source"
          id={ERROR_HANDLE}
          position={Position.Bottom}
          className={`${css.handle} ${css.error}`}
          isConnectable={canEdit}
          title={ERROR_HANDLE}
        />
      )}
    </>
  );
}

/** A handle that does nothing, as the graph finds it in the document. */
function Anchor({ type, id, position, className, style }: HandleProps & ComponentProps<"div">) {
  return (
    <div
      className={`react-flow__handle react-flow__handle-${position} ${type} ${className}`}
      style={style}
      data-handleid={id}
      data-handlepos={position}
    />
  );
}

function HandleNames({ data }: Props) {
  if (data.handles.length < 2) return null;
  return (
    <span className={css.names} aria-hidden="true">
      {data.handles.map((handle) => (
        <span key={handle}>{handle.replaceAll("_", " ")}</span>
      ))}
    </span>
  );
}

const Card = memo((props: Props) => {
  const { attributes, marks, state } = useNode(props);
  const { data } = props;
  return (
    <div className={css.card} {...attributes}>
      <div className={css.head}>
        <span className={css.stamp}>{data.kind.stamp}</span>
        <span className={css.name}>{data.name}</span>
        {marks}
      </div>
      <div className={css.body}>
        <span className={css.summary}>{state?.detail ?? data.summary}</span>
        <HandleNames {...props} />
      </div>
      <Handles {...props} />
    </div>
  );
});

const Frame = memo((props: Props) => {
  const { attributes, marks, state } = useNode(props);
  const { data } = props;
  return (
    <div className={css.frame} {...attributes}>
      <div className={css.frameHead}>
        <Fold {...props} />
        <span className={css.stamp}>{data.kind.stamp}</span>
        <span className={css.name}>{data.name}</span>
        <span className={css.summary}>{state?.detail ?? data.summary}</span>
        {state?.rounds?.length ? <Tally rounds={state.rounds} shown={12} /> : null}
        <RoundPicker id={props.id} rounds={state?.rounds ?? []} round={state?.round} />
        {marks}
        <HandleNames {...props} />
      </div>
      {data.isEmpty && <p className={css.hint}>Drop nodes here.</p>}
      <Handles {...props} />
    </div>
  );
});

function Fold({ id, data }: Props) {
  const { onFold } = useContext(GraphContext);
  if (!onFold) return null;
  return (
    <button
      type="button"
      className={`nodrag ${css.fold}`}
      aria-label={`${data.isFolded ? "Open" : "Fold"} ${data.name}`}
      aria-expanded={!data.isFolded}
      onClick={(event) => {
        event.stopPropagation();
        onFold(id);
      }}
    >
      {data.isFolded ? "▸" : "▾"}
    </button>
  );
}

/** Chooses the round of a loop that the nodes inside it show. */
function RoundPicker({ id, rounds, round }: { id: string; rounds: Round[]; round?: number }) {
  const { onRound } = useContext(GraphContext);
  if (!onRound || rounds.length === 0) return null;
  return (
    <select
      className={`nodrag ${css.round}`}
      aria-label={`Round of ${id}`}
      value={round ?? rounds.length}
      onClick={(event) => event.stopPropagation()}
      onKeyDown={(event) => event.stopPropagation()}
      onChange={(event) => onRound(id, Number(event.target.value))}
    >
      {rounds.map((outcome, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a round's number is its identity
        <option key={at} value={at + 1}>
          round {at + 1}, {outcome.replace("-", " ")}
        </option>
      ))}
    </select>
  );
}

const Note = memo((props: Props) => {
  const { attributes, marks } = useNode(props);
  return (
    <div className={css.note} {...attributes}>
      {marks}
      {props.data.summary || props.data.name}
    </div>
  );
});

export const NODE_VIEWS = { card: Card, frame: Frame, note: Note };
