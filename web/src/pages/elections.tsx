import { path } from "../api/client";
import type { Election } from "../api/types";
import { count, holderLabel } from "../format";
import { useNow } from "../live/clock";
import { useFetched } from "../live/fetched";
import { Ask } from "../parts/ask";
import { Empty, Show } from "../parts/feedback";
import { PageHead } from "../parts/panel";
import { HolderName, State } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { TtlBar } from "../parts/ttl-bar";
import { link, location, lockLink } from "../router";
import { useCell } from "../cell";

const POLL_MS = 2000;
const CANDIDATES_SHOWN = 5;

export function ElectionsPage() {
  const asked = useCell(location).query.get("name") ?? "";
  const known = useFetched<{ items: Election[] }>("/v1/elections", POLL_MS);
  const one = useFetched<Election>(asked ? path("elections", asked) : null, POLL_MS);
  const others = known.data?.items.filter(({ name }) => name !== asked) ?? [];
  const items = one.data ? [one.data, ...others] : others;
  return (
    <>
      <PageHead title="Elections" lead="Who leads, and who would be next. Names that this service was asked about" actions={<Ask label="Name of an election" placeholder="Name" to={(name) => link("/elections", { name })} />} />
      <Show of={known}>
        {() =>
          items.length === 0 ? (
            <Empty title="No election is known yet" command={`curl -X POST ${window.location.origin}/v1/elections/reports/campaign`}>
              This campaigns in one. You can also ask for one by its name above.
            </Empty>
          ) : (
            <ElectionTable items={items} at={known.at} />
          )
        }
      </Show>
    </>
  );
}

function ElectionTable({ items, at }: { items: Election[]; at: number }) {
  const age_ms = useNow() - at;
  const columns: Column<Election>[] = [
    {
      head: "Election",
      names: true,
      cell: ({ name }) => (
        <a class="name" href={lockLink(name)}>
          {name}
        </a>
      ),
    },
    { head: "State", cell: ({ state }) => <State of={state} /> },
    { head: "Leader", cell: ({ leader }) => <HolderName holder={leader} /> },
    { head: "Fence", class: "num", cell: ({ fence }) => fence ?? "–" },
    {
      head: "Lease",
      cell: ({ state, expires_in_ms }) => state === "led" && <TtlBar expires_in_ms={expires_in_ms} ttl_ms={null} renewals={0} age_ms={age_ms} />,
    },
    { head: "Candidates", cell: (election) => <Candidates of={election} /> },
  ];
  return <Table rows={items} columns={columns} of={({ name }) => name} panel />;
}

function Candidates({ of: { candidates } }: { of: Election }) {
  if (candidates.length === 0) return <span class="dim">none</span>;
  const more = candidates.length - CANDIDATES_SHOWN;
  return (
    <>
      {candidates.slice(0, CANDIDATES_SHOWN).map(holderLabel).join(", ")}
      {more > 0 && <span class="dim"> and {count(more)} more</span>}
    </>
  );
}
