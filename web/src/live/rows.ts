import { useEffect, useRef, useState } from "preact/hooks";
import type { LockRow, LocksPage } from "../api/types";
import { on } from "./connection";
import { useFetched } from "./fetched";

interface Changes {
  seq: number;
  at_ms: number;
  changed: LockRow[];
  removed: string[];
  more: boolean;
}

/** A row, and when it was true by the clock of this computer. */
export interface Seen {
  row: LockRow;
  at: number;
}

/** Rows that come or go change the page as a whole, which is fetched at most this often. */
const REFETCH_MS = 1000;

/** One page of locks, kept up to date by events. */
export function useLockRows(url: string) {
  const fetched = useFetched<LocksPage>(url);
  const [patches, setPatches] = useState<{ of: LocksPage | null; rows: Map<string, Seen> }>({ of: null, rows: new Map() });
  const page = useRef(fetched.data);
  page.current = fetched.data;
  const newest = useRef(0);
  const { refresh } = fetched;

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const refetchSoon = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        refresh();
      }, REFETCH_MS);
    };
    const stop = on<Changes>("locks", ({ seq, changed, removed, more }) => {
      newest.current = Math.max(newest.current, seq);
      const shown = page.current;
      if (!shown || seq <= shown.seq) return;
      const names = new Set(shown.items.map((row) => row.name));
      const here = changed.filter((row) => names.has(row.name));
      const moved = more || here.length < changed.length || removed.some((name) => names.has(name));
      if (moved) refetchSoon();
      if (here.length === 0) return;
      setPatches((before) => {
        const rows = new Map(before.of === shown ? before.rows : []);
        for (const row of here) rows.set(row.name, { row, at: Date.now() });
        return { of: shown, rows };
      });
    });
    // A service that started again counts from one.
    const stopSnapshots = on<{ seq: number }>("snapshot", ({ seq }) => {
      newest.current = seq;
    });
    return () => {
      stop();
      stopSnapshots();
      clearTimeout(timer);
    };
  }, [refresh]);

  // An event that came while the page was on its way is not in it.
  useEffect(() => {
    if (!fetched.data || fetched.data.seq >= newest.current) return;
    const timer = setTimeout(refresh, REFETCH_MS);
    return () => clearTimeout(timer);
  }, [fetched.data, refresh]);

  const patched = patches.of === fetched.data ? patches.rows : null;
  const rows = fetched.data?.items.map((row): Seen => patched?.get(row.name) ?? { row, at: fetched.at });
  return { ...fetched, rows: rows ?? null };
}
