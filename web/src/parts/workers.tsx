import type { Call } from "../api/client";
import type { Playground, Worker } from "../api/types";
import { count, plural, seconds } from "../format";
import { Empty } from "./feedback";
import { Icon } from "./icon";
import { State } from "./state";

export type Act = (path: string, options?: Call) => Promise<void>;

/** Longer than the lease, so that it runs out meanwhile. */
const PAUSE = "8s";

export function Workers({ now, act }: { now: Playground; act: Act }) {
  if (now.workers.length === 0) return <Empty title="Nobody wants the lock yet">Add a worker, and then another.</Empty>;
  return (
    <ul class="workers">
      {now.workers.map((worker) => (
        <WorkerCard key={worker.id} worker={worker} ttl_ms={now.ttl_ms} act={act} />
      ))}
    </ul>
  );
}

function WorkerCard({ worker, ttl_ms, act }: { worker: Worker; ttl_ms: number; act: Act }) {
  const stale = isStale(worker);
  const over = worker.state === "crashed" || worker.state === "stopped";
  const share = Math.max(0, Math.min(1, worker.valid_for_ms / ttl_ms));
  const on = <span class="visually-hidden"> {worker.label}</span>;
  return (
    <li class={`worker ${stale ? "stale" : worker.state}`}>
      <div class="worker-head">
        <b>{worker.label}</b>
        <State of={worker.state} />
        {worker.fence !== null && <span class="fence-tag num">fence {worker.fence}</span>}
      </div>
      <p class="worker-thought">{thought(worker)}</p>
      <span class="ttl-bar wide" aria-hidden="true">
        <span style={{ transform: `scaleX(${worker.fence === null ? 0 : share.toFixed(3)})` }} />
      </span>
      <p class="worker-numbers dim">
        {plural(worker.writes, "write")} accepted, <span class={worker.rejected > 0 ? "rejected-count" : ""}>{count(worker.rejected)} rejected</span>
      </p>
      <div class="worker-actions">
        <button type="button" class="small" disabled={over || worker.state === "paused"} onClick={() => act(`/workers/${worker.id}/pause`, { body: { for: PAUSE } })}>
          <Icon name="pause" />
          Pause {PAUSE.replace("s", " s")}
          {on}
        </button>
        <button type="button" class="small" disabled={over} onClick={() => act(`/workers/${worker.id}/crash`)}>
          Crash{on}
        </button>
        <button type="button" class="small" onClick={() => act(`/workers/${worker.id}`, { method: "DELETE", body: undefined })}>
          {over ? "Remove" : "Stop"}
          {on}
        </button>
      </div>
    </li>
  );
}

/** It believes that it holds the lock, and is wrong. */
export function isStale(worker: Worker): boolean {
  return worker.believes && worker.fence !== null && worker.valid_for_ms <= 0;
}

function thought(worker: Worker): string {
  if (isStale(worker)) return `Believes that it holds the lock. Its lease is over. Wakes in ${seconds(worker.paused_for_ms)}.`;
  switch (worker.state) {
    case "holding":
      return `Holds the lock for ${seconds(worker.valid_for_ms)} more, and renews it.`;
    case "waiting":
      return worker.place === null ? "Asks for the lock." : worker.place === 1 ? "Is the next in the queue." : `Is number ${worker.place} in the queue.`;
    case "paused":
      return worker.believes
        ? `Does not run for ${seconds(worker.paused_for_ms)}. Its lease ends in ${seconds(worker.valid_for_ms)}.`
        : `Does not run for ${seconds(worker.paused_for_ms)}.`;
    case "crashed":
      return "Is gone without a word. Its lease ends by itself.";
    case "stopped":
      return "Has given the lock back and is done.";
  }
}

export function Register({ now: { register, workers, holder, lock, log } }: { now: Playground }) {
  const last = log.find(({ kind }) => kind === "wrote" || kind === "rejected");
  const label = workers.find((worker) => worker.id === holder)?.label;
  return (
    <div class="register">
      <div class="register-fence">
        <span>Highest fence seen</span>
        <b key={register.fence} class="num">
          {register.fence || "–"}
        </b>
      </div>
      <dl class="facts">
        <div>
          <dt>Value</dt>
          <dd class="mono">{register.value || "nothing yet"}</dd>
        </div>
        <div>
          <dt>Lock “{lock}”</dt>
          <dd>{label ? `held by ${label}` : "free"}</dd>
        </div>
        <div>
          <dt>Writes accepted</dt>
          <dd class="num">{count(register.writes)}</dd>
        </div>
        <div>
          <dt>Late writes refused</dt>
          <dd class={register.rejected > 0 ? "num rejected-count" : "num"}>{count(register.rejected)}</dd>
        </div>
      </dl>
      <p class="register-last" aria-live={last?.kind === "rejected" ? "polite" : "off"}>
        {last && (
          <>
            <State of={last.kind} tone={last.kind === "wrote" ? "good" : "bad"}>
              {last.kind === "wrote" ? "accepted" : "refused"}
            </State>{" "}
            {last.text}
          </>
        )}
      </p>
      <p class="register-rule">
        <span class="dim">The same in your database</span>
        <br />
        <code>UPDATE {lock} SET value = $1, fence = $2 WHERE id = 1 AND fence &lt;= $2</code>
      </p>
    </div>
  );
}
