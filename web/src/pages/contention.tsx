import { withQuery } from "../api/client";
import type { Contention, Holders, Waited } from "../api/types";
import { useCell } from "../cell";
import { clock, duration, plural } from "../format";
import { useFetched } from "../live/fetched";
import { serviceNow } from "../live/overview";
import { Empty, Show } from "../parts/feedback";
import { PageHead, Panel } from "../parts/panel";
import { State } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { WaitedTable } from "../parts/waited-table";
import { link, location, lockLink } from "../router";

const POLL_MS = 3000;
const PAIRS = 400;
/** Labels of a side of the matrix; the table below has all of them. */
const SIDE_MAX = 16;
const TABLE_MAX = 100;

export function ContentionPage() {
  const { query } = useCell(location);
  const holder = query.get("holder") ?? "";
  const waiter = query.get("waiter") ?? "";
  const fetched = useFetched<Contention>(withQuery("/v1/contention", { limit: PAIRS }), POLL_MS);
  const since = fetched.data ? `Seen by this service since ${clock(fetched.data.since_ms)}` : "";
  return (
    <>
      <PageHead title="Who waited for whom" lead={`Time that holders kept others waiting, by their labels. ${since}`} />
      <Show of={fetched}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="Nobody has waited for anybody" command="leasehold run nightly -- sleep 20 & leasehold run nightly -- true">
              Two holders of one name are enough to see it.
            </Empty>
          ) : (
            <>
              <Panel title="Matrix" note="Holders in rows, who waited for them in columns; stronger is longer" flush>
                <Matrix items={items} holder={holder} waiter={waiter} />
              </Panel>
              {holder && <History holder={holder} pairs={items.filter((item) => item.holder === holder)} />}
              <Panel title="Pairs" note={`${plural(items.length, "pair")}, the longest wait in all first`} flush>
                <WaitedTable items={items.slice(0, TABLE_MAX)} everywhere />
              </Panel>
            </>
          )
        }
      </Show>
    </>
  );
}

function labels(items: Waited[], side: "holder" | "waiter"): string[] {
  const sums = new Map<string, number>();
  for (const item of items) sums.set(item[side], (sums.get(item[side]) ?? 0) + item.waiter_ms);
  const sorted = [...sums].sort(([, a], [, b]) => b - a);
  return sorted.slice(0, SIDE_MAX).map(([label]) => label);
}

function Matrix({ items, holder, waiter }: { items: Waited[]; holder: string; waiter: string }) {
  const [rows, columns] = [labels(items, "holder"), labels(items, "waiter")];
  const pairs = new Map(items.map((item) => [`${item.holder}\n${item.waiter}`, item]));
  const most = Math.max(...items.map((item) => item.waiter_ms), 1);
  return (
    <div class="scroll">
      <table class="matrix">
        <thead>
          <tr>
            <td />
            {columns.map((column) => (
              <th key={column} scope="col" title={column}>
                <span>{column}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row} class={row === holder ? "chosen" : ""}>
              <th scope="row">
                <a href={link("/contention", { holder: row })} title={row}>
                  {row}
                </a>
              </th>
              {columns.map((column) => {
                const pair = pairs.get(`${row}\n${column}`);
                const chosen = row === holder && column === waiter;
                return <td key={column}>{pair && <Cell pair={pair} most={most} chosen={chosen} />}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Cell({ pair, most, chosen }: { pair: Waited; most: number; chosen: boolean }) {
  const heat = Math.ceil(5 * Math.sqrt(pair.waiter_ms / most));
  const spoken = `${pair.waiter} waited ${duration(pair.waiter_ms)} for ${pair.holder}, ${plural(pair.episodes, "time")}, at most ${duration(pair.longest_ms)}`;
  return (
    <a
      class={`cell heat-${heat}`}
      href={link("/contention", { holder: pair.holder, waiter: pair.waiter })}
      aria-label={spoken}
      title={spoken}
      aria-current={chosen || undefined}
    >
      {duration(pair.waiter_ms)}
      {pair.waiting_now > 0 && <i class="dot" />}
    </a>
  );
}

function History({ holder, pairs }: { holder: string; pairs: Waited[] }) {
  const fetched = useFetched<Holders>(withQuery("/v1/holders", { label: holder }), POLL_MS);
  const total_ms = pairs.reduce((sum, pair) => sum + pair.waiter_ms, 0);
  return (
    <Panel title={`What ${holder} held`} note={`It kept ${plural(pairs.length, "other label")} waiting for ${duration(total_ms)} in all`} aside={<a href="/contention">Close</a>} flush>
      <Show of={fetched}>
        {({ items }) => (items.length === 0 ? <Empty title="No tenure of this label is remembered" /> : <Tenures items={items} />)}
      </Show>
    </Panel>
  );
}

const TENURES: Column<Holders["items"][number]>[] = [
  {
    head: "Name",
    names: true,
    cell: ({ name }) => (
      <a class="name" href={lockLink(name)}>
        {name}
      </a>
    ),
  },
  { head: "Fence", class: "num", cell: ({ fence }) => fence },
  { head: "From", cell: ({ from_ms }) => clock(from_ms) },
  { head: "For", class: "num", cell: ({ from_ms, to_ms }) => duration((to_ms ?? serviceNow()) - from_ms) },
  { head: "Ended", cell: ({ ended }) => <State of={ended ?? "held"} /> },
  { head: "Most waiters", class: "num", cell: ({ waiters_max }) => waiters_max },
];

function Tenures({ items }: { items: Holders["items"] }) {
  return <Table rows={items.slice(0, TABLE_MAX)} columns={TENURES} of={({ name, fence }) => `${name} ${fence}`} />;
}
