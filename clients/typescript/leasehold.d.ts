export interface Wish {
  mode?: "exclusive" | "shared" | "permits";
  of?: number;
  permits?: number;
  /** Seconds. */
  ttl?: number;
  /** Seconds to wait in the queue. */
  wait?: number;
  label?: string;
}

/** The service refused; `kind` is its word for it: busy, lost, taken, forbidden, store_unreachable, ... */
export class Refused extends Error {
  readonly kind: string;
  readonly status: number;
  readonly problem: Record<string, unknown>;
}

/** A lock that is held; `fence` goes with every write. */
export class Lock {
  private constructor();
  readonly name: string;
  readonly fence: number;
  readonly sequencer: string;
  /** Aborted when the lock can no longer be trusted. */
  readonly lost: AbortSignal;
  /** Milliseconds for which the lock can be trusted. */
  remaining(): number;
  /** Gives the lock back; rejects with `Refused` of the kind lost or taken if it was not ours any more. */
  release(): Promise<void>;
}

/** A session: one heartbeat keeps all locks of this program alive. */
export class Leasehold {
  private constructor();
  static open(url: string, options?: { token?: string; ttl?: number; label?: string }): Promise<Leasehold>;
  lock(name: string, wish?: Wish): Promise<Lock>;
  request(method: string, path: string, body?: unknown, headers?: Record<string, string>, timeout?: number): Promise<any>;
  /** Gives all locks back and ends the session. */
  close(): Promise<void>;
}
