import { call, path } from "../api/client";
import type { StoredRecord } from "../api/types";
import { useCell } from "../cell";
import { count, duration } from "../format";
import { allows, whoami } from "../live/whoami";
import { Confirm } from "./confirm";
import { HolderName, State } from "./state";
import { type Column, Table } from "./table";

const COLUMNS: Column<StoredRecord>[] = [
  { head: "Key", class: "mono", names: true, cell: ({ id, key }) => id ?? key },
  { head: "Operation", cell: ({ operation }) => operation ?? "–" },
  { head: "State", cell: ({ state }) => <State of={state} /> },
  { head: "Holder", cell: ({ holder }) => <HolderName holder={holder} /> },
  { head: "Fence", class: "num", cell: ({ fence }) => fence ?? "–" },
  { head: "Ends in", class: "num", cell: ({ expires_in_ms }) => duration(expires_in_ms) },
  { head: "Result", class: "wrap", cell: (record) => <Result record={record} /> },
];

/** Records of operations; each row opens to its result. */
export function RecordTable({ records, changed }: { records: StoredRecord[]; changed: () => void }) {
  useCell(whoami);
  const remove: Column<StoredRecord> = {
    head: "Actions",
    silent: true,
    class: "actions",
    cell: (record) => <Remove record={record} done={changed} />,
  };
  return <Table rows={records} columns={[...COLUMNS, remove]} of={({ key }) => key} />;
}

function Result({ record }: { record: StoredRecord }) {
  const text = record.result ?? record.result_hex ?? null;
  if (text === null) return <span class="dim">–</span>;
  return (
    <details class="result">
      <summary>
        {count(record.result_bytes)} bytes{record.result === null && ", shown as hex"}
      </summary>
      <pre>{text}</pre>
      {record.fingerprint && (
        <p class="dim">
          Fingerprint <code>{record.fingerprint.slice(0, 16)}…</code>
        </p>
      )}
    </details>
  );
}

function Remove({ record: { key, operation, id, state }, done }: { record: StoredRecord; done: () => void }) {
  if (operation === undefined || id === undefined || !allows("force", key)) return null;
  return (
    <Confirm
      label="Remove"
      on={key}
      title={`Remove the record of ${id}?`}
      danger
      act={() => call(path("idempotency", operation, id), { method: "DELETE" })}
      done={done}
    >
      <p>
        The operation <b>{operation}</b> can then be executed again under this key.
        {state === "running" && " It is running now: it would be executed twice."} The removal is written to the audit.
      </p>
    </Confirm>
  );
}
