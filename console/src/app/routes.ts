/** Every page: its address, its name, and the file that draws it. Order is matching order. */
import { type ComponentType, type LazyExoticComponent, lazy } from "react";

export interface PageRoute {
  path: string;
  /** The word in the rail; pages without one are reached from others. */
  name: string;
  /** `g` then this key goes there. */
  key?: string;
  sign?: string;
  page: LazyExoticComponent<ComponentType>;
}

export const ROUTES: PageRoute[] = [
  { path: "/", name: "Home", key: "h", sign: "⌂", page: lazy(() => import("../pages/home/Home")) },
  {
    path: "/workflows",
    name: "Workflows",
    key: "w",
    sign: "⟳",
    page: lazy(() => import("../pages/workflows/Workflows")),
  },
  { path: "/w/:id", name: "", page: lazy(() => import("../pages/canvas/CanvasPage")) },
  {
    path: "/runs",
    name: "Runs",
    key: "r",
    sign: "▮",
    page: lazy(() => import("../pages/runs/Runs")),
  },
  { path: "/r/:run/changes", name: "", page: lazy(() => import("../pages/run/ChangesPage")) },
  { path: "/r/:run", name: "", page: lazy(() => import("../pages/run/RunPage")) },
  { path: "/compare/:a/:b", name: "", page: lazy(() => import("../pages/compare/Compare")) },
  {
    path: "/queue",
    name: "Queue",
    key: "q",
    sign: "○",
    page: lazy(() => import("../pages/queue/Queue")),
  },
  {
    path: "/workers",
    name: "Workers",
    key: "k",
    sign: "▤",
    page: lazy(() => import("../pages/workers/Workers")),
  },
  {
    path: "/approvals/:id?",
    name: "Approvals",
    key: "a",
    sign: "▲",
    page: lazy(() => import("../pages/approvals/Approvals")),
  },
  {
    path: "/dispatch/:mark?",
    name: "Dispatch",
    key: "d",
    sign: "↯",
    page: lazy(() => import("../pages/dispatch/Dispatch")),
  },
  {
    path: "/dev/:process?",
    name: "Dev loop",
    key: "v",
    sign: "◉",
    page: lazy(() => import("../pages/dev/Dev")),
  },
  {
    path: "/costs",
    name: "Costs",
    key: "c",
    sign: "$",
    page: lazy(() => import("../pages/costs/Costs")),
  },
  {
    path: "/audit",
    name: "Audit",
    key: "u",
    sign: "§",
    page: lazy(() => import("../pages/audit/Audit")),
  },
  {
    path: "/doctor",
    name: "Doctor",
    key: "o",
    sign: "+",
    page: lazy(() => import("../pages/doctor/Doctor")),
  },
  {
    path: "/connections",
    name: "Connections",
    key: "n",
    sign: "⇄",
    page: lazy(() => import("../pages/connections/Connections")),
  },
  {
    path: "/settings",
    name: "Settings",
    key: "s",
    sign: "≡",
    page: lazy(() => import("../pages/settings/Settings")),
  },
];

/** The address of a page in the rail, without its optional parts. */
export function addressOf(route: PageRoute): string {
  return route.path.replace(/\/:\w+\?$/, "");
}
