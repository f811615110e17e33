import { withQuery } from "../api/client";
import type { Page, StoredRecord } from "../api/types";
import { useCell } from "../cell";
import { duration } from "../format";
import { useFetched } from "../live/fetched";
import { Empty, Show } from "../parts/feedback";
import { SearchField } from "../parts/filters";
import { Pager } from "../parts/pager";
import { PageHead } from "../parts/panel";
import { HolderName, State } from "../parts/state";
import { location } from "../router";

const POLL_MS = 5000;

export function MarkersPage() {
  const { query } = useCell(location);
  const kind = query.get("kind") ?? "";
  const url = kind ? withQuery("/v1/markers", { kind, from: query.get("from"), limit: 100 }) : null;
  const fetched = useFetched<Page<StoredRecord>>(url, POLL_MS);
  const command = `curl -X PUT ${window.location.origin}/v1/markers/${encodeURIComponent(kind || "processing")}/42 -H 'Content-Type: application/json' -d '{"ttl":"5m"}'`;
  return (
    <>
      <PageHead title="Markers" lead="What is being worked on, so that others leave it alone" />
      <div class="filters" role="group" aria-label="Filters">
        <SearchField label="Kind" name="kind" placeholder="processing" />
      </div>
      {kind === "" ? (
        <Empty title="Name a kind of marker" command={command}>
          A kind is what your program calls it, as in the command below, which sets one.
        </Empty>
      ) : (
        <Show of={fetched}>
          {({ items, next }) => (
            <>
              {items.length === 0 ? next ? <Empty title="No marker on this page of the store">Go on to the next.</Empty> : <Empty title={`Nothing is marked as ${kind}`} command={command} /> : <MarkerTable items={items} />}
              <Pager next={next} shown={items.length} />
            </>
          )}
        </Show>
      )}
    </>
  );
}

function MarkerTable({ items }: { items: StoredRecord[] }) {
  return (
    <div class="panel flush scroll">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">What</th>
            <th scope="col">State</th>
            <th scope="col">By</th>
            <th scope="col" class="num">
              Ends in
            </th>
          </tr>
        </thead>
        <tbody>
          {items.map((record) => (
            <tr key={record.key}>
              <th scope="row" class="mono">
                {record.id ?? record.key}
              </th>
              <td>
                <State of={record.state} />
              </td>
              <td>
                <HolderName holder={record.holder} />
              </td>
              <td class="num">{duration(record.expires_in_ms)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
