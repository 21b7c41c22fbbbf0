/** What else can be done with a run, for its menu and the palette. */
import type { RunDetail } from "../../api/generated";
import type { RunActions } from "../../run/actions";
import { runAddress } from "../../run/address";
import { isLiveStatus } from "../../run/useRun";
import type { MenuItem } from "../../ui/Menu/Menu";

const RESUMABLE = new Set(["paused", "interrupted"]);

export function menuItems(
  run: RunDetail,
  actions: RunActions,
  go: (address: string) => void,
): MenuItem[] {
  const isLive = isLiveStatus(run.status);
  const stopFirst = isLive ? "Stop the run first." : undefined;
  return [
    {
      label: "Run again with other inputs…",
      onSelect: () => actions.ask({ what: "run-again" }),
    },
    { label: "Compare", onSelect: () => actions.ask({ what: "compare" }) },
    { label: "All changes", onSelect: () => go(runAddress(run.runId, {}, "/changes")) },
    {
      label: "Apply changes…",
      onSelect: () => actions.ask({ what: "apply" }),
      disabled: stopFirst,
    },
    {
      label: "Resume",
      onSelect: () => actions.resume(),
      disabled: RESUMABLE.has(run.status) ? undefined : `The run is ${run.status}.`,
    },
    {
      label: "Take over",
      onSelect: () => actions.resume({ takeOver: true }),
      disabled: run.status === "stalled" ? undefined : "Its process is not stuck.",
    },
    { label: "Audit entries", onSelect: () => go(`/audit?run=${encodeURIComponent(run.runId)}`) },
  ];
}
