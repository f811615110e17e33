import { useEffect, useRef } from "preact/hooks";
import { path } from "../api/client";
import type { HolderRow, LockDetail, LockHistory, WaiterRow } from "../api/types";
import { useCell } from "../cell";
import { ago, clock, count, duration, plural } from "../format";
import { useNow } from "../live/clock";
import { on } from "../live/connection";
import { useFetched } from "../live/fetched";
import { serviceNow } from "../live/overview";
import { AuditTable } from "../parts/audit-table";
import { Command } from "../parts/command";
import { Empty, Loading, ProblemNote } from "../parts/feedback";
import { ForceReleaseButton } from "../parts/force-release";
import { Histogram } from "../parts/histogram";
import { Facts, PageHead, Panel } from "../parts/panel";
import { HolderName, State } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Timeline } from "../parts/timeline";
import { TtlBar } from "../parts/ttl-bar";
import { WaitedTable } from "../parts/waited-table";
import { location } from "../router";

/** Between two looks at one lock when events say that it changed. */
const REFETCH_MS = 500;
/** What no event reports: how long others have waited, and how the queue is ordered. */
const POLL_MS = 5000;

export function LockPage() {
  const name = useCell(location).query.get("name") ?? "";
  const detail = useFetched<LockDetail>(name ? path("locks", name) : null, POLL_MS);
  const history = useFetched<LockHistory>(name ? path("locks", name, "history") : null, POLL_MS);
  useRefreshOnEvents(name, () => {
    detail.refresh();
    history.refresh();
  });
  if (!name) {
    return <PageHead title="No lock was named" lead={<a href="/locks">Choose one from the list</a>} />;
  }
  const lock = detail.data;
  return (
    <>
      <PageHead
        title={<span class="mono">{name}</span>}
        lead={
          <>
            <a href="/locks">Locks</a>
            {lock && (
              <>
                {" "}
                <State of={lock.state} /> {lock.mode && <span class="tag">{lock.mode}</span>}
              </>
            )}
          </>
        }
        actions={lock && <ForceReleaseButton name={name} fence={lock.fence} holder={lock.holder} />}
      />
      {detail.problem && <ProblemNote problem={detail.problem} retry={detail.refresh} />}
      {lock ? <Now lock={lock} at={detail.at} /> : detail.loading && <Loading />}
      {history.problem && <ProblemNote problem={history.problem} retry={history.refresh} />}
      {history.data && <Past history={history.data} />}
    </>
  );
}

function useRefreshOnEvents(name: string, refresh: () => void): void {
  const latest = useRef(refresh);
  latest.current = refresh;
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = on<{ changed: { name: string }[]; removed: string[] }>("locks", ({ changed, removed }) => {
      if (!removed.includes(name) && !changed.some((row) => row.name === name)) return;
      timer ??= setTimeout(() => {
        timer = undefined;
        latest.current();
      }, REFETCH_MS);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [name]);
}

function Now({ lock, at }: { lock: LockDetail; at: number }) {
  const age_ms = Math.max(0, useNow() - at);
  return (
    <div class="columns">
      <Panel title={lock.holders_total > 1 ? `${count(lock.holders_total)} holders` : "Holder"} flush>
        {lock.holders.length === 0 ? <Empty title="Nobody holds it" command={`leasehold run ${quote(lock.name)} -- CMD`} /> : <HolderTable lock={lock} age_ms={age_ms} />}
      </Panel>
      <Panel title="Queue" note={lock.waiting > 0 ? `${count(lock.waiting)} waiting, the next first` : undefined} flush>
        {lock.waiters.length === 0 ? <Empty title="Nobody waits" /> : <Queue waiters={lock.waiters} total={lock.waiting} age_ms={age_ms} />}
      </Panel>
    </div>
  );
}

function HolderTable({ lock, age_ms }: { lock: LockDetail; age_ms: number }) {
  const lease = (row: HolderRow, first: boolean) =>
    first ? { ttl_ms: lock.ttl_ms, renewals: lock.renewals } : { ttl_ms: lock.ttl_ms ?? row.expires_in_ms, renewals: 0 };
  const columns: Column<HolderRow>[] = [
    {
      head: "Holder",
      names: true,
      cell: (row) => (
        <>
          <HolderName holder={row.holder} />
          {row.mode === "permits" && <span class="tag">{plural(row.permits ?? 1, "permit")}</span>}
        </>
      ),
    },
    { head: "Fence", class: "num", cell: ({ fence }) => fence },
    { head: "Since", class: "num", cell: ({ holder }) => (holder.kind === "leasehold" ? ago(serviceNow() - holder.since_ms) : "–") },
    { head: "Lease", cell: (row, index) => <TtlBar expires_in_ms={row.expires_in_ms} {...lease(row, index === 0)} age_ms={age_ms} /> },
  ];
  return <Table rows={lock.holders} columns={columns} of={({ fence }) => fence} />;
}

function Queue({ waiters, total, age_ms }: { waiters: WaiterRow[]; total: number; age_ms: number }) {
  return (
    <ol class="queue-list">
      {waiters.map((waiter, index) => (
        <li key={index}>
          <span class="queue-place num">{index + 1}</span>
          <HolderName holder={waiter.holder} />
          {waiter.mode !== "exclusive" && <span class="tag">{waiter.mode}</span>}
          <span class="num dim">{duration(waiter.waiting_for_ms + age_ms)}</span>
        </li>
      ))}
      {total > waiters.length && <li class="dim">and {count(total - waiters.length)} more</li>}
    </ol>
  );
}

function Past({ history }: { history: LockHistory }) {
  const watched = `Seen by this service since ${clock(history.since_ms)}`;
  return (
    <>
      <Panel title="Tenures" note={watched}>
        {history.tenures.length === 0 ? <Empty title="No holder has been seen yet" /> : <Timeline tenures={history.tenures} />}
      </Panel>
      <div class="columns">
        <Panel title="How long it was held">
          <Histogram {...history.hold_histogram} />
        </Panel>
        <Panel title="Who waited for whom" flush>
          {history.waited.length === 0 ? <Empty title="Nobody has waited" /> : <WaitedTable items={history.waited} />}
        </Panel>
      </div>
      <Panel title="Audit" flush>
        {history.audit.length === 0 ? <Empty title="No administrative act on this lock" /> : <AuditTable entries={history.audit} />}
      </Panel>
      <Panel title="The same on a command line">
        <Facts
          facts={[
            ["Look", <Command key="look" text={history.commands.inspect} />],
            ["Run under it", <Command key="run" text={history.commands.run} />],
            ...(history.commands.force_release ? [["Force release", <Command key="force" text={history.commands.force_release} />] as [string, preact.ComponentChild]] : []),
          ]}
        />
      </Panel>
    </>
  );
}

/** As a word of a shell command. */
function quote(name: string): string {
  return /^[\w:.@/-]+$/.test(name) ? name : `'${name.replaceAll("'", `'\\''`)}'`;
}
