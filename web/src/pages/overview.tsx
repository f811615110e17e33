import type { HotName, Lint, Overview, Series } from "../api/types";
import { useCell } from "../cell";
import { clock, count, duration, words } from "../format";
import { connection } from "../live/connection";
import { overview, serviceNow } from "../live/overview";
import { Chart } from "../parts/chart";
import { Counters } from "../parts/counters";
import { Empty, Loading } from "../parts/feedback";
import { PageHead, Panel } from "../parts/panel";
import type { Tone } from "../parts/state";
import { link, lockLink } from "../router";

export function OverviewPage() {
  const whole = useCell(overview);
  const { state, why } = useCell(connection);
  if (!whole) {
    return (
      <>
        <PageHead title="Overview" />
        {state === "lost" ? <Empty title="Nothing has arrived yet">{why ?? "The service does not answer."}</Empty> : <Loading rows={8} />}
      </>
    );
  }
  return (
    <>
      <PageHead title="Overview" lead={`Seen by this service since ${clock(whole.since_ms)}, ${duration(serviceNow() - whole.since_ms)} ago`} />
      <Now of={whole} />
      {whole.counters.names === 0 && (
        <div class="panel">
          <Empty title="No lock is held" command="leasehold run nightly -- sleep 60">
            This takes one. To see what happens when a holder crashes or stops, open the <a href="/playground">playground</a>.
          </Empty>
        </div>
      )}
      <Charts series={whole.series} />
      <div class="columns">
        <Panel title="Hot names" note="By the time that others waited for them" flush>
          <Hot names={whole.hot} />
        </Panel>
        <Panel title="Worth a look" note="What the service noticed" flush>
          <Lints lints={whole.lints} />
        </Panel>
      </div>
    </>
  );
}

function Now({ of: { counters } }: { of: Overview }) {
  const overdue_ms = counters.deadlines_overdue_ms;
  const tone = (n: number, tone: Tone) => (n > 0 ? tone : "plain");
  return (
    <Counters
      counters={[
        { label: "Held", value: count(counters.held), to: "/locks" },
        { label: "Waiting", value: count(counters.waiting), to: link("/locks", { waiting: "true" }), tone: tone(counters.waiting, "wait") },
        { label: "Expiring", value: count(counters.expiring), to: link("/locks", { sort: "expires" }), tone: tone(counters.expiring, "wait") },
        { label: "Lost in 1 h", value: count(counters.lost_1h), to: "/contention", tone: tone(counters.lost_1h, "bad") },
        { label: "Idempotent", value: count(counters.idempotent_running), to: link("/idempotency", { state: "running" }) },
        { label: "Deadlines due", value: count(counters.deadlines_due), to: "/deadlines" },
        { label: "Most overdue", value: overdue_ms > 0 ? duration(overdue_ms) : "–", to: "/deadlines", tone: tone(overdue_ms, "wait") },
        { label: "Sessions", value: count(counters.sessions), to: "/nodes" },
      ]}
      note={counters.truncated && "The store has more names than the service follows: these are lower bounds."}
    />
  );
}

function Charts({ series }: { series: Series }) {
  const at = series.at_ms.map((ms) => ms ?? 0);
  const step_s = Math.max(1, series.step_ms / 1000);
  const rate = (column: (number | null)[]) => column.map((n) => (n === null ? null : n / step_s));
  const perSecond = (n: number) => (n === 0 ? "0/s" : n < 10 ? `${n.toFixed(1)}/s` : `${count(Math.round(n))}/s`);
  return (
    <div class="columns three">
      <Panel title="Acquisitions">
        <Chart
          label="Acquisitions per second by outcome"
          at={at}
          format={perSecond}
          lines={[
            { label: "acquired", colour: "good", fill: true, values: rate(series.acquired) },
            { label: "refused", colour: "wait", values: rate(series.refused) },
            { label: "timed out", colour: "violet", values: rate(series.timed_out) },
            { label: "failed", colour: "bad", values: rate(series.failed) },
            { label: "lost", colour: "bad", dash: true, values: rate(series.lost) },
          ]}
        />
      </Panel>
      <Panel title="Time to acquire" note="Through this service">
        <Chart
          label="Time that acquisitions waited"
          at={at}
          format={duration}
          lines={[
            { label: "p50", colour: "accent", fill: true, values: series.wait_p50_ms },
            { label: "p95", colour: "violet", values: series.wait_p95_ms },
            { label: "p99", colour: "wait", values: series.wait_p99_ms },
          ]}
        />
      </Panel>
      <Panel title="Held and waiting">
        <Chart
          label="Locks held, and attempts that wait"
          at={at}
          format={(n) => count(Math.round(n))}
          lines={[
            { label: "held", colour: "good", fill: true, values: series.held },
            { label: "waiting", colour: "wait", values: series.waiting },
          ]}
        />
      </Panel>
    </div>
  );
}

function Hot({ names }: { names: HotName[] }) {
  if (names.length === 0) return <Empty title="No name is contended" />;
  const most = Math.max(1, ...names.map((name) => name.waiter_ms));
  return (
    <div class="scroll">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Waited for</th>
            <th scope="col" class="num">
              Acquired
            </th>
            <th scope="col" class="num">
              Most waiters
            </th>
          </tr>
        </thead>
        <tbody>
          {names.map((row) => (
            <tr key={row.name}>
              <th scope="row">
                <a class="name" href={lockLink(row.name)}>
                  {row.name}
                </a>
              </th>
              <td>
                <span class="meter" aria-hidden="true">
                  <span style={{ width: `${(100 * row.waiter_ms) / most}%` }} />
                </span>
                {duration(row.waiter_ms)}
              </td>
              <td class="num">{count(row.acquisitions)}</td>
              <td class="num">{count(row.waiters_max)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Lints({ lints }: { lints: Lint[] }) {
  if (lints.length === 0) return <Empty title="Nothing stands out" />;
  return (
    <ul class="lints">
      {lints.map((lint) => (
        <li key={`${lint.code} ${lint.name} ${lint.at_ms}`}>
          <span class="lint-head">
            <span class="tag wait">{words(lint.code)}</span>
            <a href={lockLink(lint.name)}>{lint.name}</a>
            <span class="dim">{clock(lint.at_ms)}</span>
          </span>
          <p>
            {lint.found} <span class="dim">{lint.fix}</span>
          </p>
        </li>
      ))}
    </ul>
  );
}
