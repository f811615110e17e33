import { useEffect } from "preact/hooks";
import { withQuery } from "../api/client";
import type { AuditEntry, Page } from "../api/types";
import { useCell } from "../cell";
import { on } from "../live/connection";
import { useFetched } from "../live/fetched";
import { AuditTable } from "../parts/audit-table";
import { Empty, Show } from "../parts/feedback";
import { SearchField } from "../parts/filters";
import { Pager } from "../parts/pager";
import { PageHead } from "../parts/panel";
import { location } from "../router";

export function AuditPage() {
  const { query } = useCell(location);
  const name = query.get("name") ?? "";
  const fetched = useFetched<Page<AuditEntry>>(withQuery("/v1/audit", { name, from: query.get("from"), limit: 100 }));
  useEffect(() => on("audit", fetched.refresh), [fetched.refresh]);
  return (
    <>
      <PageHead title="Audit" lead="Administrative acts through this service: who, on what, and why" />
      <div class="filters" role="group" aria-label="Filters">
        <SearchField label="Name" name="name" />
      </div>
      <Show of={fetched}>
        {({ items, next }) => (
          <>
            {items.length > 0 ? (
              <div class="panel flush">
                <AuditTable entries={items} />
              </div>
            ) : (
              <Empty title={name ? "No act on this name" : "No administrative act yet"}>
                A forced release, a changed limit, a removed record and a requeued deadline are written here.
              </Empty>
            )}
            <Pager next={next} shown={items.length} />
          </>
        )}
      </Show>
    </>
  );
}
