import { useState } from "preact/hooks";
import { path } from "../api/client";
import type { Election } from "../api/types";
import { count, holderLabel } from "../format";
import { useNow } from "../live/clock";
import { useFetched } from "../live/fetched";
import { Empty, Show } from "../parts/feedback";
import { PageHead } from "../parts/panel";
import { HolderName, State } from "../parts/state";
import { TtlBar } from "../parts/ttl-bar";
import { link, location, lockLink, navigate } from "../router";
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
      <PageHead title="Elections" lead="Who leads, and who would be next. Names that this service was asked about" actions={<Ask />} />
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

function Ask() {
  const [name, setName] = useState("");
  return (
    <form
      class="inline"
      onSubmit={(event) => {
        event.preventDefault();
        if (name) navigate(link("/elections", { name }));
      }}
    >
      <input aria-label="Name of an election" placeholder="Name" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      <button type="submit" disabled={!name}>
        Show
      </button>
    </form>
  );
}

function ElectionTable({ items, at }: { items: Election[]; at: number }) {
  const age_ms = useNow() - at;
  return (
    <div class="panel flush scroll">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">Election</th>
            <th scope="col">State</th>
            <th scope="col">Leader</th>
            <th scope="col" class="num">
              Fence
            </th>
            <th scope="col">Lease</th>
            <th scope="col">Candidates</th>
          </tr>
        </thead>
        <tbody>
          {items.map((election) => (
            <tr key={election.name}>
              <th scope="row">
                <a class="name" href={lockLink(election.name)}>
                  {election.name}
                </a>
              </th>
              <td>
                <State of={election.state} />
              </td>
              <td>
                <HolderName holder={election.leader} />
              </td>
              <td class="num">{election.fence ?? "–"}</td>
              <td>{election.state === "led" && <TtlBar expires_in_ms={election.expires_in_ms} ttl_ms={null} renewals={0} age_ms={age_ms} />}</td>
              <td>
                <Candidates of={election} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
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
