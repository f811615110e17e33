import { useEffect, useState } from "preact/hooks";
import { Problem, call } from "../api/client";
import type { Playground, PlaygroundLog } from "../api/types";
import { clock } from "../format";
import { useNow } from "../live/clock";
import { on } from "../live/connection";
import { useFetched } from "../live/fetched";
import { aged, useLanes } from "../live/lanes";
import { serviceNow } from "../live/overview";
import { Loading, ProblemNote } from "../parts/feedback";
import { Icon } from "../parts/icon";
import { Lanes } from "../parts/lanes";
import { PageHead, Panel } from "../parts/panel";
import { Register, Workers, type Act } from "../parts/workers";

const WORKERS_MAX = 8;
const TICK_MS = 200;

export function PlaygroundPage() {
  const fetched = useFetched<Playground>("/v1/playground");
  const [latest, setLatest] = useState<Playground | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => on<Playground>("playground", setLatest), []);
  const at_ms = serviceNow(useNow(TICK_MS));
  const picture = newest(latest, fetched.data);
  const now = picture && aged(picture, at_ms);
  const lanes = useLanes(now);
  const done = useSteps(now);

  const act: Act = async (path, options = {}) => {
    setProblem(null);
    try {
      setLatest(await call<Playground>(`/v1/playground${path}`, { method: "POST", body: {}, ...options }));
    } catch (cause) {
      setProblem(Problem.from(cause));
    }
  };

  return (
    <>
      <PageHead
        title="Playground"
        lead="Real locks on a store inside this service. Nothing here touches your store, so break things."
        actions={
          <>
            <button type="button" onClick={() => act("/reset")}>
              Start over
            </button>
            <button type="button" class="primary" disabled={(now?.workers.length ?? 0) >= WORKERS_MAX} onClick={() => act("/workers", { body: undefined })}>
              <Icon name="plus" />
              Add a worker
            </button>
          </>
        }
      />
      {problem && <ProblemNote problem={problem} />}
      {fetched.problem && <ProblemNote problem={fetched.problem} retry={fetched.refresh} />}
      {now ? (
        <>
          <div class="columns stage">
            <Panel title="Try this">
              <Steps done={done} />
            </Panel>
            <Panel title="The resource" note="It remembers the highest fence it has seen, and refuses lower ones">
              <Register now={now} />
            </Panel>
          </div>
          <Panel title="Workers" note={`All want the lock “${now.lock}”. A lease lasts ${now.ttl_ms / 1000} s and is renewed while its worker runs`} flush>
            <Workers now={now} act={act} />
          </Panel>
          <Panel title="What happened" note="The last 45 seconds">
            <Lanes lanes={lanes} now_ms={now.at_ms} />
            <Log entries={now.log} />
          </Panel>
        </>
      ) : (
        fetched.loading && <Loading rows={8} />
      )}
    </>
  );
}

function newest(a: Playground | null, b: Playground | null): Playground | null {
  if (!a || !b) return a ?? b;
  return a.at_ms >= b.at_ms ? a : b;
}

const STEPS: [string, string][] = [
  ["Add two workers", "One holds the lock and writes. The other waits in the queue."],
  ["Pause the holder for 8 s", "Like a long garbage collection or a suspended machine. Nobody tells it that time passes."],
  ["Watch its lease run out", "The lock goes to the next worker, with a higher fence. Nobody had to detect a failure."],
  ["Watch its late write bounce", "The paused worker still believes that it holds the lock. The fence says otherwise, and the resource refuses."],
];

/** How far the reader has come, by what the log shows. */
function useSteps(now: Playground | null): number {
  const [done, setDone] = useState(0);
  const reached = now ? stepsIn(now, done) : 0;
  useEffect(() => setDone(reached), [reached]);
  return reached;
}

function stepsIn({ workers, log }: Playground, before: number): number {
  if (workers.length === 0) return 0;
  const has = (kind: PlaygroundLog["kind"]) => log.some((entry) => entry.kind === kind);
  if (has("rejected")) return 4;
  const paused = log.find((entry) => entry.kind === "paused" && entry.fence !== null);
  const overtaken = paused && log.some((entry) => entry.kind === "acquired" && entry.seq > paused.seq && entry.worker !== paused.worker);
  const shown = overtaken ? 3 : paused ? 2 : workers.length >= 2 ? 1 : 0;
  // The log is short: what it no longer shows has happened all the same.
  return Math.max(shown, before);
}

function Steps({ done }: { done: number }) {
  return (
    <ol class="steps">
      {STEPS.map(([title, text], index) => (
        <li key={title} class={index < done ? "done" : index === done ? "next" : ""} aria-current={index === done ? "step" : undefined}>
          <span class="step-number">{index < done ? <Icon name="check" /> : index + 1}</span>
          <div>
            <b>{title}</b>
            {index < done && <span class="visually-hidden"> (done)</span>}
            <p>{text}</p>
          </div>
        </li>
      ))}
    </ol>
  );
}

function Log({ entries }: { entries: PlaygroundLog[] }) {
  return (
    <ol class="log" aria-label="Log, newest first" tabIndex={0}>
      {entries.map((entry) => (
        <li key={entry.seq} class={entry.kind}>
          <time class="dim">{clock(entry.at_ms)}</time>
          <span class={`log-kind ${entry.kind}`}>{entry.kind}</span>
          <span>{entry.text}</span>
        </li>
      ))}
    </ol>
  );
}
