import { call, path } from "../api/client";
import type { StoredRecord } from "../api/types";
import { useCell } from "../cell";
import { count, duration } from "../format";
import { allows, whoami } from "../live/whoami";
import { Confirm } from "./confirm";
import { HolderName, State } from "./state";

/** Records of operations; each row opens to its result. */
export function RecordTable({ records, changed }: { records: StoredRecord[]; changed: () => void }) {
  useCell(whoami);
  return (
    <div class="scroll">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">Key</th>
            <th scope="col">Operation</th>
            <th scope="col">State</th>
            <th scope="col">Holder</th>
            <th scope="col" class="num">
              Fence
            </th>
            <th scope="col" class="num">
              Ends in
            </th>
            <th scope="col">Result</th>
            <th scope="col">
              <span class="visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {records.map((record) => (
            <tr key={record.key}>
              <th scope="row" class="mono">
                {record.id ?? record.key}
              </th>
              <td>{record.operation ?? "–"}</td>
              <td>
                <State of={record.state} />
              </td>
              <td>
                <HolderName holder={record.holder} />
              </td>
              <td class="num">{record.fence ?? "–"}</td>
              <td class="num">{duration(record.expires_in_ms)}</td>
              <td class="wrap">
                <Result record={record} />
              </td>
              <td class="actions">
                <Remove record={record} done={changed} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
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
