import type { AuditEntry } from "../api/types";
import { clock, words } from "../format";
import { lockLink } from "../router";
import { State, type Tone } from "./state";

export function AuditTable({ entries }: { entries: AuditEntry[] }) {
  return (
    <div class="scroll">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Act</th>
            <th scope="col">On</th>
            <th scope="col" class="num">
              Fence
            </th>
            <th scope="col">By</th>
            <th scope="col">Reason</th>
            <th scope="col">Outcome</th>
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <tr key={entry.id}>
              <td class="nowrap">{clock(entry.at_ms)}</td>
              <td class="nowrap">{words(entry.action)}</td>
              <th scope="row">{isLock(entry) ? <a href={lockLink(entry.name)}>{entry.name}</a> : <span class="mono">{entry.name}</span>}</th>
              <td class="num">{entry.fence ?? "–"}</td>
              <td>
                {entry.by} <span class="dim">{entry.from}</span>
              </td>
              <td class="wrap">{entry.reason ?? "–"}</td>
              <td>
                <State of={entry.outcome} tone={tone(entry.outcome)} />
                {entry.kept === "memory" && <span class="tag">not in the store</span>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function isLock({ action }: AuditEntry): boolean {
  return action === "force_release" || action === "set_limit";
}

function tone(outcome: string): Tone {
  if (outcome.startsWith("failed") || outcome === "changed") return "bad";
  return outcome === "requested" ? "wait" : "plain";
}
