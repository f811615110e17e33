import { useEffect, useState } from "preact/hooks";
import { withQuery } from "../api/client";
import type { LockRow } from "../api/types";
import { useCell } from "../cell";
import { count, duration, plural } from "../format";
import { useNow } from "../live/clock";
import { useLockRows, type Seen } from "../live/rows";
import { Empty, Loading, ProblemNote } from "../parts/feedback";
import { Choice, SearchField } from "../parts/filters";
import { ForceReleaseButton } from "../parts/force-release";
import { Pager } from "../parts/pager";
import { PageHead } from "../parts/panel";
import { HolderName, State } from "../parts/state";
import { TtlBar } from "../parts/ttl-bar";
import { location, lockLink, setQuery } from "../router";

const ROWS = 100;
const FILTERS = ["prefix", "state", "mode", "holder", "waiting"];

export function LocksPage() {
  const { query } = useCell(location);
  const value = (key: string) => query.get(key) ?? "";
  const asked = Object.fromEntries([...FILTERS, "sort", "from"].map((key) => [key, value(key)]));
  const { rows, data, problem, loading, refresh } = useLockRows(withQuery("/v1/locks", { ...asked, limit: ROWS }));
  const filtered = FILTERS.some((key) => value(key));
  return (
    <>
      <PageHead title="Locks" lead={data ? `${plural(data.total, "lock")} ${filtered ? "match" : "held or waited for"}` : "Held or waited for"} />
      <div class="filters" role="group" aria-label="Filters">
        <SearchField label="Name begins with" name="prefix" />
        <SearchField label="Holder" name="holder" />
        <Choice label="State" name="state" options={{ "": "any", held: "held", waiting: "free, with waiters" }} />
        <Choice label="Mode" name="mode" options={{ "": "any", exclusive: "exclusive", shared: "shared", permits: "permits" }} />
        <Choice label="Waiters" name="waiting" options={{ "": "any number", true: "at least one" }} />
        <Choice label="Order" name="sort" options={{ "": "name", waiting: "most waiters", age: "held longest", expires: "expires soonest" }} />
        {filtered && (
          <button type="button" onClick={() => setQuery(Object.fromEntries(FILTERS.map((key) => [key, ""])))}>
            Clear
          </button>
        )}
      </div>
      {problem && <ProblemNote problem={problem} retry={refresh} />}
      {rows === null ? (
        loading && <Loading rows={8} />
      ) : rows.length === 0 ? (
        <Nothing filtered={filtered} />
      ) : (
        <div class="panel flush">
          <LockTable rows={rows} />
        </div>
      )}
      {data && <Pager next={data.next} shown={data.items.length} total={data.total} />}
    </>
  );
}

function Nothing({ filtered }: { filtered: boolean }) {
  if (filtered) return <Empty title="No lock matches">Change the filters, or clear them.</Empty>;
  return (
    <Empty title="Nobody holds a lock" command="leasehold run nightly -- sleep 60">
      This takes one. It shows up here within two seconds.
    </Empty>
  );
}

export function LockTable({ rows }: { rows: Seen[] }) {
  const now = useNow();
  return (
    <div class="scroll">
      <table class="rows locks">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">State</th>
            <th scope="col">Holder</th>
            <th scope="col" class="num">
              Held for
            </th>
            <th scope="col" class="num">
              Fence
            </th>
            <th scope="col">Lease</th>
            <th scope="col" class="num">
              Waiters
            </th>
            <th scope="col">
              <span class="visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ row, at }) => (
            <Row key={row.name} row={row} age_ms={now - at} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ row, age_ms }: { row: LockRow; age_ms: number }) {
  const held_ms = row.held_for_ms === null ? null : row.held_for_ms + Math.max(0, age_ms);
  return (
    <tr>
      <th scope="row">
        <a class="name" href={lockLink(row.name)}>
          {row.name}
        </a>
        <ModeNote row={row} />
      </th>
      <td>
        <State of={row.state} />
      </td>
      <td>
        <HolderName holder={row.holder} />
        {row.holders_total > 1 && <span class="dim"> and {count(row.holders_total - 1)} more</span>}
      </td>
      <td class="num">{duration(held_ms)}</td>
      <td class="num">
        <Fence fence={row.fence} />
      </td>
      <td>{row.state === "held" && <TtlBar {...row} age_ms={age_ms} />}</td>
      <td class="num">{row.waiting > 0 ? <b class="queue">{count(row.waiting)}</b> : <span class="dim">0</span>}</td>
      <td class="actions">
        <ForceReleaseButton name={row.name} fence={row.fence} holder={row.holder} />
      </td>
    </tr>
  );
}

function ModeNote({ row }: { row: LockRow }) {
  if (row.mode === "permits") {
    return (
      <span class="tag">
        {row.permits_used ?? "?"} of {row.limit ?? "?"} permits
      </span>
    );
  }
  return row.mode === "shared" ? <span class="tag">shared</span> : null;
}

/** A fence that has just changed is marked for a moment. */
function Fence({ fence }: { fence: number | null }) {
  const [first] = useState(fence);
  const [changed, setChanged] = useState(false);
  useEffect(() => {
    if (fence === first && !changed) return;
    setChanged(true);
    const timer = setTimeout(() => setChanged(false), 2000);
    return () => clearTimeout(timer);
  }, [fence]);
  return <span class={changed ? "fence changed" : "fence"}>{fence ?? "–"}</span>;
}
