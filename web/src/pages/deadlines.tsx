import { call, path, withQuery } from "../api/client";
import type { DeadLetter, Page, Pool, PoolDetail } from "../api/types";
import { useCell } from "../cell";
import { clock, count, duration, plural } from "../format";
import { useFetched } from "../live/fetched";
import { allows, whoami } from "../live/whoami";
import { Ask } from "../parts/ask";
import { Confirm } from "../parts/confirm";
import { Counters } from "../parts/counters";
import { Empty, Show } from "../parts/feedback";
import { HeatMap } from "../parts/heat-map";
import { Pager } from "../parts/pager";
import { PageHead, Panel } from "../parts/panel";
import { type Column, Table } from "../parts/table";
import { link, location } from "../router";

const POLL_MS = 3000;

export function DeadlinesPage() {
  const pool = useCell(location).query.get("pool") ?? "";
  return pool ? <OnePool key={pool} name={pool} /> : <Pools />;
}

function Pools() {
  const fetched = useFetched<{ items: Pool[] }>("/v1/deadlines", POLL_MS);
  return (
    <>
      <PageHead title="Deadlines" lead="Work that should have ended by a time. Pools that this service was asked about, or was started with" actions={<Ask label="Name of a pool" placeholder="Pool" to={(pool) => link("/deadlines", { pool })} />} />
      <Show of={fetched}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty
              title="No pool is known yet"
              command={`curl -X PUT ${window.location.origin}/v1/deadlines/payments/42 -H 'Content-Type: application/json' -d '{"in":"5m"}'`}
            >
              This sets a deadline in the pool payments. A pool of another service shows up once you ask for its name above.
            </Empty>
          ) : (
            <Table rows={items} columns={POOLS} of={({ name }) => name} panel />
          )
        }
      </Show>
    </>
  );
}

const POOLS: Column<Pool>[] = [
  {
    head: "Pool",
    names: true,
    cell: ({ name }) => (
      <a class="name" href={link("/deadlines", { pool: name })}>
        {name}
      </a>
    ),
  },
  { head: "Pending", class: "num", cell: ({ pending }) => count(pending) },
  { head: "Due", class: "num", cell: ({ due }) => (due > 0 ? <b class="queue">{count(due)}</b> : <span class="dim">0</span>) },
  { head: "Tried", class: "num", cell: ({ tried }) => count(tried) },
  { head: "Most overdue", class: "num", cell: ({ overdue_ms }) => (overdue_ms > 0 ? duration(overdue_ms) : "–") },
  { head: "Dead letters", class: "num", cell: ({ dead }) => (dead > 0 ? <b class="queue bad">{count(dead)}</b> : <span class="dim">0</span>) },
  { head: "Layout", class: "dim", cell: ({ layout }) => layout ?? "–" },
];

function OnePool({ name }: { name: string }) {
  const fetched = useFetched<PoolDetail>(withQuery(path("deadlines", name), { limit: 100 }), POLL_MS);
  return (
    <>
      <PageHead title={<span class="mono">{name}</span>} lead={<><a href="/deadlines">Deadlines</a>{fetched.data?.layout && <span class="tag">{fetched.data.layout}</span>}</>} />
      <Show of={fetched}>
        {(pool) => (
          <>
            <Counters
              counters={[
                { label: "Pending", value: count(pool.pending) },
                { label: "Due", value: count(pool.due), tone: pool.due > 0 ? "wait" : "plain" },
                { label: "Tried before", value: count(pool.tried) },
                { label: "Most overdue", value: pool.overdue_ms > 0 ? duration(pool.overdue_ms) : "–" },
                { label: "Dead letters", value: count(pool.dead), tone: pool.dead > 0 ? "bad" : "plain" },
              ]}
            />
            <Panel title="Heat map" note={pool.heat.at_ms[0] ? `Since ${clock(pool.heat.at_ms[0])}; stronger is more` : undefined}>
              {pool.heat.at_ms.length === 0 ? <Empty title="Nothing has been counted yet">The service counts once it has been asked for a pool.</Empty> : <HeatMap heat={pool.heat} />}
            </Panel>
            <Panel title="Overdue" note="The longest first" flush>
              {pool.items.length === 0 ? <Empty title="Nothing is overdue" /> : <Table rows={pool.items} columns={OVERDUE} of={({ id }) => id} />}
            </Panel>
            <Dead pool={name} changed={fetched.refresh} />
          </>
        )}
      </Show>
    </>
  );
}

const OVERDUE: Column<PoolDetail["items"][number]>[] = [
  { head: "Deadline", class: "mono", names: true, cell: ({ id }) => id },
  { head: "Overdue for", class: "num", cell: ({ overdue_ms }) => duration(overdue_ms) },
  { head: "Attempts", class: "num", cell: ({ attempts }) => count(attempts) },
];

function Dead({ pool, changed }: { pool: string; changed: () => void }) {
  const from = useCell(location).query.get("from");
  const fetched = useFetched<Page<DeadLetter>>(withQuery(path("deadlines", pool, "dead"), { from, limit: 100 }), POLL_MS);
  const done = () => {
    fetched.refresh();
    changed();
  };
  return (
    <Panel title="Dead letters" note="Given up after too many attempts" flush>
      <Show of={fetched}>
        {({ items, next }) => (
          <>
            {items.length === 0 ? <Empty title="No dead letter" /> : <DeadTable pool={pool} items={items} done={done} />}
            <Pager next={next} shown={items.length} />
          </>
        )}
      </Show>
    </Panel>
  );
}

const LETTERS: Column<DeadLetter>[] = [
  { head: "Deadline", class: "mono", names: true, cell: ({ id }) => id },
  { head: "Buried", class: "nowrap", cell: ({ buried_at_ms }) => clock(buried_at_ms) },
  { head: "Attempts", class: "num", cell: ({ attempts }) => count(attempts) },
  {
    head: "Why",
    class: "wrap",
    cell: ({ why, context }) => (
      <>
        {why}
        {context !== null && (
          <details class="result">
            <summary>context</summary>
            <pre>{context}</pre>
          </details>
        )}
      </>
    ),
  },
];

function DeadTable({ pool, items, done }: { pool: string; items: DeadLetter[]; done: () => void }) {
  useCell(whoami);
  const requeue: Column<DeadLetter> = {
    head: "Actions",
    silent: true,
    class: "actions",
    cell: ({ id, attempts }) =>
      allows("force", pool) && (
        <Confirm
          label="Requeue"
          on={id}
          title={`Requeue ${id}?`}
          act={() => call(path("deadlines", pool, "dead", id, "requeue"), { method: "POST", body: {} })}
          done={done}
        >
          <p>It becomes due at once, with its context. It had {plural(attempts, "attempt")}. The act is written to the audit.</p>
        </Confirm>
      ),
  };
  return <Table rows={items} columns={[...LETTERS, requeue]} of={({ id }) => id} />;
}
