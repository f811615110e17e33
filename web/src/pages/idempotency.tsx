import { withQuery } from "../api/client";
import type { Page, StoredRecord } from "../api/types";
import { useCell } from "../cell";
import { useFetched } from "../live/fetched";
import { Empty, Show } from "../parts/feedback";
import { Choice, SearchField } from "../parts/filters";
import { Pager } from "../parts/pager";
import { PageHead } from "../parts/panel";
import { RecordTable } from "../parts/record-table";
import { location } from "../router";

const POLL_MS = 5000;
const STATES = { "": "any", running: "running", completed: "completed", failed: "failed", quarantined: "quarantined", corrupt: "corrupt" };

export function IdempotencyPage() {
  const { query } = useCell(location);
  const asked = { operation: query.get("operation"), state: query.get("state"), from: query.get("from"), limit: 100 };
  const fetched = useFetched<Page<StoredRecord>>(withQuery("/v1/idempotency", asked), POLL_MS);
  const filtered = Boolean(asked.operation || asked.state);
  return (
    <>
      <PageHead title="Idempotency" lead="Operations that run once for each key, and the results that repeats get" />
      <div class="filters" role="group" aria-label="Filters">
        <SearchField label="Operation" name="operation" placeholder="payout" />
        <Choice label="State" name="state" options={STATES} />
      </div>
      <Show of={fetched}>
        {({ items, next }) => (
          <>
            {items.length > 0 ? (
              <div class="panel flush">
                <RecordTable records={items} changed={fetched.refresh} />
              </div>
            ) : next ? (
              <Empty title="No record on this page of the store">The next pages may have some: the store is read part by part.</Empty>
            ) : (
              <Nothing filtered={filtered} />
            )}
            <Pager next={next} shown={items.length} />
          </>
        )}
      </Show>
    </>
  );
}

function Nothing({ filtered }: { filtered: boolean }) {
  if (filtered) return <Empty title="No record matches">Change the filters, or clear them.</Empty>;
  const command = `curl -X POST ${window.location.origin}/v1/idempotency/payout/42/begin`;
  return (
    <Empty title="No operation has been executed yet" command={command}>
      This begins one. A second request with the same key is told that it is in progress.
    </Empty>
  );
}
