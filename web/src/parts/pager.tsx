import { location, setQuery } from "../router";
import { useCell } from "../cell";

/** Pages of a listing: the service knows only the next one, so the way back is kept in the browser's history entry. */
export function Pager({ next, shown, total }: { next: string | null; shown: number; total?: number }) {
  const { query } = useCell(location);
  const from = query.get("from") ?? "";
  const trail = from ? trailHere() : [];
  const number = from ? trail.length + 1 : 1;
  const go = (to: string, before: string[]) => {
    setQuery({ from: to });
    history.replaceState({ trail: before }, "");
    location.set({ ...location.value });
    scrollTo({ top: 0 });
  };
  if (!from && !next) return null;
  return (
    <nav class="pager" aria-label="Pages of this list">
      <span class="dim">
        Page {number}, {shown} {total === undefined ? "shown" : `of ${total.toLocaleString("en-US")}`}
      </span>
      <button type="button" disabled={!from} onClick={() => go("", [])}>
        First
      </button>
      <button type="button" disabled={trail.length === 0} onClick={() => go(trail.at(-1) ?? "", trail.slice(0, -1))}>
        Previous
      </button>
      <button type="button" disabled={!next} onClick={() => next && go(next, [...trail, from])}>
        Next
      </button>
    </nav>
  );
}

function trailHere(): string[] {
  const state = history.state as { trail?: unknown } | null;
  return Array.isArray(state?.trail) ? (state.trail as string[]) : [];
}
