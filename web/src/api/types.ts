/** Answers of the service, field by field as it sends them. Times ending in `_at_ms` or `at_ms` are wall clock. */

export type Holder =
  | { kind: "leasehold"; host: string; pid: number; since_ms: number; label: string }
  | { kind: "foreign" };

export type Mode = "exclusive" | "shared" | "permits";

export interface HolderRow {
  holder: Holder;
  fence: number;
  mode: Mode;
  permits?: number;
  expires_in_ms: number | null;
}

export interface WaiterRow {
  holder: Holder;
  mode: Mode;
  permits?: number;
  waiting_for_ms: number;
}

export interface LockRow {
  name: string;
  state: "held" | "waiting" | "free";
  mode: Mode | null;
  holder: Holder | null;
  fence: number | null;
  expires_in_ms: number | null;
  waiting: number;
  holders_total: number;
  permits_used?: number;
  limit?: number;
  held_for_ms: number | null;
  ttl_ms: number | null;
  renewals: number;
}

export interface LockDetail extends LockRow {
  holders: HolderRow[];
  waiters: WaiterRow[];
}

export interface Page<T> {
  items: T[];
  next: string | null;
}

export interface LocksPage extends Page<LockRow> {
  seq: number;
  at_ms: number;
  total: number;
}

export type Ended = "released" | "expired" | "handed_over" | "forced";

export interface Tenure {
  fence: number;
  holder: Holder;
  mode: Mode;
  from_ms: number;
  to_ms: number | null;
  ended: Ended | null;
  waiters_max: number;
  renewals: number;
}

export interface LockHistory {
  name: string;
  since_ms: number;
  tenures: Tenure[];
  hold_histogram: { bounds_ms: (number | null)[]; counts: number[] };
  waited: Waited[];
  audit: AuditEntry[];
  commands: { inspect: string; force_release: string | null; run: string };
}

export interface AuditEntry {
  id: string;
  at_ms: number;
  action: "force_release" | "set_limit" | "remove_record" | "requeue";
  name: string;
  fence: number | null;
  by: string;
  from: string;
  reason: string | null;
  outcome: string;
  kept: "store" | "memory";
}

export interface StoreStatus {
  url: string;
  engine: string;
  reachable: boolean;
  since_ms: number;
  error: string | null;
}

export interface Counters {
  held: number;
  waiting: number;
  expiring: number;
  lost_1h: number;
  idempotent_running: number;
  deadlines_due: number;
  deadlines_overdue_ms: number;
  sessions: number;
  names: number;
  truncated: boolean;
}

export const COLUMNS = [
  "at_ms",
  "acquired",
  "refused",
  "timed_out",
  "failed",
  "lost",
  "released",
  "held",
  "waiting",
  "wait_p50_ms",
  "wait_p95_ms",
  "wait_p99_ms",
] as const;
export type Column = (typeof COLUMNS)[number];
export type Series = { step_ms: number } & Record<Column, (number | null)[]>;
export type Point = Record<Column, number | null>;

export interface HotName {
  name: string;
  acquisitions: number;
  waiter_ms: number;
  waiters_max: number;
}

export interface Lint {
  code: "late_renewal" | "convoy" | "overheld" | "no_expiry";
  name: string;
  found: string;
  fix: string;
  at_ms: number;
}

export interface Overview {
  seq: number;
  at_ms: number;
  since_ms: number;
  store: StoreStatus;
  read_only: boolean;
  draining: boolean;
  counters: Counters;
  series: Series;
  hot: HotName[];
  lints: Lint[];
}

export interface Contention {
  since_ms: number;
  at_ms: number;
  items: Waited[];
}

export interface Waited {
  holder: string;
  waiter: string;
  waiter_ms: number;
  longest_ms: number;
  episodes: number;
  waiting_now: number;
  names: string[];
}

export interface Holders {
  since_ms: number;
  items: (Tenure & { name: string })[];
}

export interface StoredRecord {
  key: string;
  operation?: string;
  id?: string;
  state: "running" | "completed" | "failed" | "quarantined" | "marked" | "corrupt";
  holder: Holder | null;
  fence: number | null;
  fingerprint: string | null;
  expires_in_ms: number | null;
  result: string | null;
  result_hex?: string;
  result_bytes: number;
}

export interface Pool {
  name: string;
  pending: number;
  due: number;
  tried: number;
  overdue_ms: number;
  dead: number;
  layout: string | null;
}

export interface PoolDetail extends Pool {
  items: { id: string; attempts: number; overdue_ms: number }[];
  heat: { step_ms: number; at_ms: number[]; pending: number[]; due: number[]; overdue_ms: number[] };
}

export interface DeadLetter {
  id: string;
  attempts: number;
  buried_at_ms: number;
  why: string;
  context: string | null;
}

export interface Election {
  name: string;
  state: "led" | "vacant";
  leader: Holder | null;
  fence: number | null;
  expires_in_ms: number | null;
  candidates: Holder[];
}

export interface Nodes {
  engine: string;
  url: string;
  capabilities: { name: string; value: string; why: string | null }[];
  health: { facts: [string, string][]; warnings: { code: string; found: string; fix: string }[] } | null;
  health_error: string | null;
  members: ({ label: string; state: string; highest: number } & Record<string, unknown>)[] | null;
  service: {
    version: string;
    host: string;
    pid: number;
    started_at_ms: number;
    sessions: number;
    attempts: number;
    executions: number;
    connections: number;
    event_clients: number;
  };
}

export interface Session {
  id: string;
  label: string;
  ttl_ms: number;
  expires_in_ms: number;
  held: number;
  lost: number;
}

export type Right = "read" | "hold" | "force";

export interface WhoAmI {
  token: string | null;
  rights: { prefix: string; allow: Right[] }[];
  read_only: boolean;
  version: string;
  store: string;
  authentication: "none" | "token";
  playground: boolean;
}

export interface Worker {
  id: number;
  label: string;
  state: "waiting" | "holding" | "paused" | "crashed" | "stopped";
  fence: number | null;
  valid_for_ms: number;
  believes: boolean;
  place: number | null;
  paused_for_ms: number;
  writes: number;
  rejected: number;
}

export interface PlaygroundLog {
  seq: number;
  at_ms: number;
  worker: number;
  kind: "waiting" | "acquired" | "wrote" | "rejected" | "released" | "lost" | "crashed" | "paused" | "resumed";
  fence: number | null;
  text: string;
}

export interface Playground {
  at_ms: number;
  lock: string;
  ttl_ms: number;
  workers: Worker[];
  register: { fence: number; value: string; writes: number; rejected: number };
  holder: number | null;
  queue: number[];
  log: PlaygroundLog[];
}

/** RFC 9457, with what the service adds. */
export interface ProblemBody {
  type?: string;
  title: string;
  status: number;
  detail: string;
  kind: string;
  retry?: boolean;
  name?: string;
  hint?: string;
  pointer?: string;
  retry_after_ms?: number;
  holder?: Holder;
  place?: number;
  fence?: number;
}
