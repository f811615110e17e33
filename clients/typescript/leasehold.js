/** Locks of a `leasehold serve`, without dependencies: for Node 18 and later, Deno, Bun and browsers.
 *
 *     const leases = await Leasehold.open("http://127.0.0.1:7420");
 *     const lock = await leases.lock("deal:42", { wait: 5 });
 *     try { await write(lock.fence, { signal: lock.lost }); } finally { await lock.release(); }
 *
 *  A validity counts from when *this* program sent its request, never from the answer. `lost` is aborted before anybody else can
 *  have the lock. The clock of JavaScript may stop while the machine sleeps: give the fence to whatever you write to.
 */

/** The service refused; `kind` is its word for it: busy, lost, taken, forbidden, store_unreachable, ... */
export class Refused extends Error {
  constructor(problem) {
    super(String(problem.detail ?? "no detail"));
    this.kind = String(problem.kind ?? "unknown");
    this.status = Number(problem.status ?? 0);
    this.problem = problem;
  }
}

/** A lock that is held; `fence` goes with every write. */
export class Lock {
  #loss = new AbortController();
  #leases;
  #token;

  constructor(leases, answer, sentAt) {
    this.name = answer.name;
    this.fence = answer.fence;
    this.sequencer = answer.sequencer;
    this.#token = answer.token;
    this.#leases = leases;
    this.validUntil = sentAt + answer.valid_for_ms;
    this.margin = answer.ttl_ms / 20;
  }

  /** Aborted when the lock can no longer be trusted. */
  get lost() {
    return this.#loss.signal;
  }

  /** Milliseconds for which the lock can be trusted. */
  remaining() {
    return this.lost.aborted ? 0 : Math.max(0, this.validUntil - performance.now());
  }

  /** Gives the lock back; rejects with `Refused` of the kind lost or taken if it was not ours any more. */
  async release() {
    this.#leases.forget(this);
    await this.#leases.request("POST", `/v1/locks/${encodeURIComponent(this.name)}/release`, { token: this.#token });
  }

  lose() {
    this.#leases.forget(this);
    this.#loss.abort(new Error(`lost the lock "${this.name}" (fence ${this.fence})`));
  }
}

/** A session: one heartbeat keeps all locks of this program alive. */
export class Leasehold {
  #held = new Map();
  #url;
  #token;
  #ttl;
  #session;
  #timers = [];

  constructor(url, token, ttl) {
    this.#url = url.replace(/\/$/, "");
    this.#token = token;
    this.#ttl = ttl;
  }

  static async open(url, { token, ttl = 30, label = "" } = {}) {
    const leases = new Leasehold(url, token, ttl);
    leases.#session = await leases.request("POST", "/v1/sessions", { ttl: span(ttl), label });
    leases.#timers = [
      setInterval(() => void leases.#renew(), (ttl * 1000) / 3),
      setInterval(() => leases.#expire(), Math.min(50, ttl * 50)),
    ];
    return leases;
  }

  async lock(name, { wait = 0, ttl, ...wish } = {}) {
    const headers = {
      "Leasehold-Secret": this.#session.secret,
      "Idempotency-Key": crypto.randomUUID(),
      Prefer: `wait=${wait}`,
    };
    const body = { ...wish, ...(ttl === undefined ? {} : { ttl: span(ttl) }), session: this.#session.id };
    const sentAt = performance.now();
    const path = `/v1/locks/${encodeURIComponent(name)}/acquire`;
    const lock = new Lock(this, await this.request("POST", path, body, headers, wait * 1000 + 10_000), sentAt);
    this.#held.set(`${lock.name}\n${lock.fence}`, lock);
    return lock;
  }

  async request(method, path, body, headers = {}, timeout = 10_000) {
    const answer = await fetch(this.#url + path, {
      method,
      headers: {
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...(this.#token ? { Authorization: `Bearer ${this.#token}` } : {}),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(timeout),
    });
    const text = await answer.text();
    const value = text ? JSON.parse(text) : {};
    if (!answer.ok) throw new Refused(value);
    return value;
  }

  /** Gives all locks back and ends the session. */
  async close() {
    this.#timers.forEach(clearInterval);
    await this.request("DELETE", `/v1/sessions/${this.#session.id}`, undefined, { "Leasehold-Secret": this.#session.secret });
  }

  forget(lock) {
    this.#held.delete(`${lock.name}\n${lock.fence}`);
  }

  async #renew() {
    const sentAt = performance.now();
    const headers = { "Leasehold-Secret": this.#session.secret };
    const path = `/v1/sessions/${this.#session.id}`;
    // What is not renewed runs out by our own clock.
    const renewed = await this.request("PUT", path, undefined, headers, Math.max(1000, this.#ttl * 333)).catch(() => undefined);
    for (const { name, fence, valid_for_ms } of renewed?.held ?? []) {
      const lock = this.#held.get(`${name}\n${fence}`);
      if (lock) lock.validUntil = Math.max(lock.validUntil, sentAt + valid_for_ms);
    }
    for (const { name, fence } of renewed?.lost ?? []) this.#held.get(`${name}\n${fence}`)?.lose();
  }

  #expire() {
    for (const lock of [...this.#held.values()]) {
      if (lock.validUntil - lock.margin <= performance.now()) lock.lose();
    }
  }
}

function span(seconds) {
  return `${Math.round(seconds * 1000)}ms`;
}
