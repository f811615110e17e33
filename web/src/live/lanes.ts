import { useRef } from "preact/hooks";
import type { Playground, Worker } from "../api/types";

/** How far back the lanes of the playground go. */
export const LANES_MS = 45_000;

export interface Span {
  state: Worker["state"];
  /** A paused worker that believes it holds the lock, although its lease is over. */
  stale: boolean;
  fence: number | null;
  from_ms: number;
  to_ms: number;
}

export interface Mark {
  at_ms: number;
  kind: "wrote" | "rejected";
}

export interface Lane {
  worker: Worker;
  spans: Span[];
  marks: Mark[];
}

interface Memory {
  spans: Map<number, Span[]>;
  marks: Map<number, Mark[]>;
  /** The last line of the log that has become a mark. */
  seq: number;
}

const EMPTY = (): Memory => ({ spans: new Map(), marks: new Map(), seq: 0 });

/** A picture that is a little old, with what counts down by itself. */
export function aged(picture: Playground, at_ms: number): Playground {
  const age_ms = Math.max(0, at_ms - picture.at_ms);
  const left = (ms: number) => Math.max(0, ms - age_ms);
  const workers = picture.workers.map((worker) => ({
    ...worker,
    valid_for_ms: left(worker.valid_for_ms),
    paused_for_ms: left(worker.paused_for_ms),
  }));
  return { ...picture, at_ms: picture.at_ms + age_ms, workers };
}

/** What each worker did, put together from one picture after another. */
export function useLanes(now: Playground | null): Lane[] {
  const memory = useRef(EMPTY());
  if (!now) return [];
  const startedOver = (now.log[0]?.seq ?? 0) < memory.current.seq;
  if (startedOver) memory.current = EMPTY();
  remember(memory.current, now);
  return now.workers.map((worker) => ({
    worker,
    spans: memory.current.spans.get(worker.id) ?? [],
    marks: memory.current.marks.get(worker.id) ?? [],
  }));
}

function remember(memory: Memory, now: Playground): void {
  const oldest = now.at_ms - LANES_MS;
  for (const worker of now.workers) {
    const spans = (memory.spans.get(worker.id) ?? []).filter((span) => span.to_ms >= oldest);
    const stale = worker.believes && worker.fence !== null && worker.valid_for_ms <= 0;
    const last = spans.at(-1);
    if (last && last.state === worker.state && last.stale === stale && last.fence === worker.fence) last.to_ms = now.at_ms;
    else {
      if (last) last.to_ms = now.at_ms;
      spans.push({ state: worker.state, stale, fence: worker.fence, from_ms: now.at_ms, to_ms: now.at_ms });
    }
    memory.spans.set(worker.id, spans);
  }
  for (const { seq, at_ms, worker, kind } of [...now.log].reverse()) {
    if (seq <= memory.seq || (kind !== "wrote" && kind !== "rejected")) continue;
    const marks = (memory.marks.get(worker) ?? []).filter((mark) => mark.at_ms >= oldest);
    memory.marks.set(worker, [...marks, { at_ms, kind }]);
  }
  memory.seq = Math.max(memory.seq, now.log[0]?.seq ?? 0);
}
