import { useState } from "preact/hooks";
import { call, path, withQuery } from "../api/client";
import type { DeadLetter, Page, Pool, PoolDetail } from "../api/types";
import { useCell } from "../cell";
import { clock, count, duration, plural } from "../format";
import { useFetched } from "../live/fetched";
import { allows, whoami } from "../live/whoami";
import { Confirm } from "../parts/confirm";
import { Counters } from "../parts/counters";
import { Empty, Show } from "../parts/feedback";
import { HeatMap } from "../parts/heat-map";
import { Pager } from "../parts/pager";
import { PageHead, Panel } from "../parts/panel";
import { link, location, navigate } from "../router";

const POLL_MS = 3000;

export function DeadlinesPage() {
  const pool = useCell(location).query.get("pool") ?? "";
  return pool ? <OnePool key={pool} name={pool} /> : <Pools />;
}

function Pools() {
  const fetched = useFetched<{ items: Pool[] }>("/v1/deadlines", POLL_MS);
  return (
    <>
      <PageHead title="Deadlines" lead="Work that should have ended by a time. Pools that this service was asked about, or was started with" actions={<Ask />} />
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
            <PoolTable pools={items} />
          )
        }
      </Show>
    </>
  );
}

function Ask() {
  const [name, setName] = useState("");
  return (
    <form
      class="inline"
      onSubmit={(event) => {
        event.preventDefault();
        if (name) navigate(link("/deadlines", { pool: name }));
      }}
    >
      <input aria-label="Name of a pool" placeholder="Pool" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      <button type="submit" disabled={!name}>
        Show
      </button>
    </form>
  );
}

function PoolTable({ pools }: { pools: Pool[] }) {
  return (
    <div class="panel flush scroll">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">Pool</th>
            <th scope="col" class="num">
              Pending
            </th>
            <th scope="col" class="num">
              Due
            </th>
            <th scope="col" class="num">
              Tried
            </th>
            <th scope="col" class="num">
              Most overdue
            </th>
            <th scope="col" class="num">
              Dead letters
            </th>
            <th scope="col">Layout</th>
          </tr>
        </thead>
        <tbody>
          {pools.map((pool) => (
            <tr key={pool.name}>
              <th scope="row">
                <a class="name" href={link("/deadlines", { pool: pool.name })}>
                  {pool.name}
                </a>
              </th>
              <td class="num">{count(pool.pending)}</td>
              <td class="num">{pool.due > 0 ? <b class="queue">{count(pool.due)}</b> : <span class="dim">0</span>}</td>
              <td class="num">{count(pool.tried)}</td>
              <td class="num">{pool.overdue_ms > 0 ? duration(pool.overdue_ms) : "–"}</td>
              <td class="num">{pool.dead > 0 ? <b class="queue bad">{count(pool.dead)}</b> : <span class="dim">0</span>}</td>
              <td class="dim">{pool.layout ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

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
              {pool.items.length === 0 ? <Empty title="Nothing is overdue" /> : <Overdue items={pool.items} />}
            </Panel>
            <Dead pool={name} changed={fetched.refresh} />
          </>
        )}
      </Show>
    </>
  );
}

function Overdue({ items }: { items: PoolDetail["items"] }) {
  return (
    <table class="rows">
      <thead>
        <tr>
          <th scope="col">Deadline</th>
          <th scope="col" class="num">
            Overdue for
          </th>
          <th scope="col" class="num">
            Attempts
          </th>
        </tr>
      </thead>
      <tbody>
        {items.map((item) => (
          <tr key={item.id}>
            <th scope="row" class="mono">
              {item.id}
            </th>
            <td class="num">{duration(item.overdue_ms)}</td>
            <td class="num">{count(item.attempts)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

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

function DeadTable({ pool, items, done }: { pool: string; items: DeadLetter[]; done: () => void }) {
  useCell(whoami);
  return (
    <div class="scroll">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">Deadline</th>
            <th scope="col">Buried</th>
            <th scope="col" class="num">
              Attempts
            </th>
            <th scope="col">Why</th>
            <th scope="col">
              <span class="visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {items.map((letter) => (
            <tr key={letter.id}>
              <th scope="row" class="mono">
                {letter.id}
              </th>
              <td class="nowrap">{clock(letter.buried_at_ms)}</td>
              <td class="num">{count(letter.attempts)}</td>
              <td class="wrap">
                {letter.why}
                {letter.context !== null && (
                  <details class="result">
                    <summary>context</summary>
                    <pre>{letter.context}</pre>
                  </details>
                )}
              </td>
              <td class="actions">
                {allows("force", pool) && (
                  <Confirm
                    label="Requeue"
                    on={letter.id}
                    title={`Requeue ${letter.id}?`}
                    act={() => call(path("deadlines", pool, "dead", letter.id, "requeue"), { method: "POST", body: {} })}
                    done={done}
                  >
                    <p>It becomes due at once, with its context. It had {plural(letter.attempts, "attempt")}. The act is written to the audit.</p>
                  </Confirm>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
