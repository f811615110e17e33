import { COLUMNS, type Overview, type Point, type Series, type StoreStatus } from "../api/types";
import { cell } from "../cell";
import { on } from "./connection";

const POINTS_MAX = 720;

export const overview = cell<Overview | null>(null);

/** How far the clock of the service is ahead of the one here. */
let skew_ms = 0;

/** The time of the service when it is `here_ms` on this computer. */
export function serviceNow(here_ms = Date.now()): number {
  return here_ms + skew_ms;
}

function takeTime({ at_ms }: { at_ms: number }): void {
  skew_ms = at_ms - Date.now();
}

on<{ overview: Overview }>("snapshot", ({ overview: whole }) => {
  takeTime(whole);
  overview.set(whole);
});

on<Overview & { point: Point | null }>("overview", ({ point, ...next }) => {
  takeTime(next);
  const before = overview.value;
  if (!before) return;
  overview.set({ ...next, series: point ? append(before.series, point) : before.series });
});

on<{ at_ms: number }>("heartbeat", takeTime);

on<Pick<StoreStatus, "reachable" | "since_ms" | "error">>("store", (status) => {
  const before = overview.value;
  if (before) overview.set({ ...before, store: { ...before.store, ...status } });
});

/** A repeated point is dropped: replayed messages may overlap the snapshot. */
export function append(series: Series, point: Point): Series {
  const last = series.at_ms.at(-1);
  if (point.at_ms === null || (last !== null && last !== undefined && point.at_ms <= last)) return series;
  const columns = COLUMNS.map((name) => [name, [...series[name], point[name]].slice(-POINTS_MAX)]);
  return { step_ms: series.step_ms, ...Object.fromEntries(columns) } as Series;
}
