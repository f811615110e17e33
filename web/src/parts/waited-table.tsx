import type { Waited } from "../api/types";
import { count, duration } from "../format";
import { link, lockLink } from "../router";
import { type Column, Table } from "./table";

const COLUMNS: Column<Waited>[] = [
  { head: "Holder", names: true, cell: ({ holder }) => <a href={link("/contention", { holder })}>{holder}</a> },
  { head: "Kept waiting", cell: ({ waiter }) => waiter },
  { head: "In all", class: "num", cell: ({ waiter_ms }) => duration(waiter_ms) },
  { head: "Longest", class: "num", cell: ({ longest_ms }) => duration(longest_ms) },
  { head: "Times", class: "num", cell: ({ episodes }) => count(episodes) },
];

const MORE: Column<Waited>[] = [
  {
    head: "Waiting now",
    class: "num",
    cell: ({ waiting_now }) => (waiting_now > 0 ? <b class="queue">{count(waiting_now)}</b> : <span class="dim">0</span>),
  },
  {
    head: "Names",
    class: "names",
    cell: ({ names }) =>
      names.map((name) => (
        <a key={name} href={lockLink(name)}>
          {name}
        </a>
      )),
  },
];

/** Who waited for whom; `everywhere` also says for which locks. */
export function WaitedTable({ items, everywhere }: { items: Waited[]; everywhere?: boolean }) {
  return <Table rows={items} columns={everywhere ? [...COLUMNS, ...MORE] : COLUMNS} of={({ holder, waiter }) => `${holder}\n${waiter}`} />;
}
