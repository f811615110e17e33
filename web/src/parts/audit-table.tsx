import type { AuditEntry } from "../api/types";
import { clock, words } from "../format";
import { lockLink } from "../router";
import { State, type Tone } from "./state";
import { type Column, Table } from "./table";

const COLUMNS: Column<AuditEntry>[] = [
  { head: "When", class: "nowrap", cell: ({ at_ms }) => clock(at_ms) },
  { head: "Act", class: "nowrap", cell: ({ action }) => words(action) },
  {
    head: "On",
    names: true,
    cell: (entry) => (isLock(entry) ? <a href={lockLink(entry.name)}>{entry.name}</a> : <span class="mono">{entry.name}</span>),
  },
  { head: "Fence", class: "num", cell: ({ fence }) => fence ?? "–" },
  {
    head: "By",
    cell: ({ by, from }) => (
      <>
        {by} <span class="dim">{from}</span>
      </>
    ),
  },
  { head: "Reason", class: "wrap", cell: ({ reason }) => reason ?? "–" },
  {
    head: "Outcome",
    cell: ({ outcome, kept }) => (
      <>
        <State of={outcome} tone={tone(outcome)} />
        {kept === "memory" && <span class="tag">not in the store</span>}
      </>
    ),
  },
];

export function AuditTable({ entries }: { entries: AuditEntry[] }) {
  return <Table rows={entries} columns={COLUMNS} of={({ id }) => id} />;
}

function isLock({ action }: AuditEntry): boolean {
  return action === "force_release" || action === "set_limit";
}

function tone(outcome: string): Tone {
  if (outcome.startsWith("failed") || outcome === "changed") return "bad";
  return outcome === "requested" ? "wait" : "plain";
}
