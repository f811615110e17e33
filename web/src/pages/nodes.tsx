import type { Nodes, Session } from "../api/types";
import { clock, count, duration, words } from "../format";
import { useFetched } from "../live/fetched";
import { Empty, Show } from "../parts/feedback";
import { Icon } from "../parts/icon";
import { Facts, PageHead, Panel } from "../parts/panel";
import { State } from "../parts/state";

const POLL_MS = 10_000;
const SESSIONS_SHOWN = 50;

export function NodesPage() {
  const fetched = useFetched<Nodes>("/v1/nodes", POLL_MS);
  return (
    <>
      <PageHead title="Nodes" lead="The store behind this service, what it can do, and how it is" />
      <Show of={fetched}>
        {(nodes) => (
          <>
            <Warnings nodes={nodes} />
            <div class="columns">
              <Panel title="Store">
                <Facts facts={[["Engine", nodes.engine], ["Address", <code key="url">{nodes.url}</code>], ...(nodes.health?.facts ?? [])]} />
              </Panel>
              <Panel title="Service">
                <Service of={nodes.service} />
              </Panel>
            </div>
            {nodes.members && (
              <Panel title="Members" flush>
                <Members members={nodes.members} />
              </Panel>
            )}
            <Panel title="Capabilities" flush>
              <Capabilities of={nodes.capabilities} />
            </Panel>
            <Sessions />
          </>
        )}
      </Show>
    </>
  );
}

function Warnings({ nodes: { health, health_error } }: { nodes: Nodes }) {
  return (
    <>
      {health_error && (
        <div class="notice bad" role="alert">
          <Icon name="warn" />
          <div>
            <strong>The store could not be checked.</strong> <p>{health_error}</p>
          </div>
        </div>
      )}
      {health?.warnings.map((warning) => (
        <div key={warning.code} class="notice wait">
          <Icon name="warn" />
          <div>
            <strong>{words(warning.code)}</strong>
            <p>
              {warning.found} {warning.fix}
            </p>
          </div>
        </div>
      ))}
    </>
  );
}

function Service({ of: service }: { of: Nodes["service"] }) {
  return (
    <Facts
      facts={[
        ["Version", service.version],
        ["Runs on", `${service.host}, pid ${service.pid}`],
        ["Started", clock(service.started_at_ms)],
        ["Sessions", count(service.sessions)],
        ["Attempts that wait", count(service.attempts)],
        ["Operations under way", count(service.executions)],
        ["Connections", count(service.connections)],
        ["Readers of events", count(service.event_clients)],
      ]}
    />
  );
}

function Members({ members }: { members: NonNullable<Nodes["members"]> }) {
  return (
    <table class="rows">
      <thead>
        <tr>
          <th scope="col">Node</th>
          <th scope="col">State</th>
          <th scope="col" class="num">
            Highest fence
          </th>
        </tr>
      </thead>
      <tbody>
        {members.map((member) => (
          <tr key={member.label}>
            <th scope="row" class="mono">
              {member.label}
            </th>
            <td>
              <State of={member.state} />
            </td>
            <td class="num">{member.highest}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Capabilities({ of: capabilities }: { of: Nodes["capabilities"] }) {
  return (
    <div class="scroll">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">Capability</th>
            <th scope="col">Here</th>
            <th scope="col">Why not</th>
          </tr>
        </thead>
        <tbody>
          {capabilities.map(({ name, value, why }) => (
            <tr key={name}>
              <th scope="row">{words(name)}</th>
              <td>{value === "no" || value === "yes" ? <State of={value} tone={value === "yes" ? "good" : "plain"} /> : value}</td>
              <td class="wrap dim">{why}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Sessions() {
  const fetched = useFetched<{ items: Session[] }>("/v1/sessions", POLL_MS);
  return (
    <Panel title="Sessions" note="One heartbeat for all that a process holds" flush>
      <Show of={fetched}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="No session is open" command={`curl -X POST ${window.location.origin}/v1/sessions`} />
          ) : (
            <div class="scroll">
              <table class="rows">
                <thead>
                  <tr>
                    <th scope="col">Label</th>
                    <th scope="col">Session</th>
                    <th scope="col" class="num">
                      Holds
                    </th>
                    <th scope="col" class="num">
                      Lost
                    </th>
                    <th scope="col" class="num">
                      Ends in
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {items.slice(0, SESSIONS_SHOWN).map((session) => (
                    <tr key={session.id}>
                      <th scope="row">{session.label || "–"}</th>
                      <td class="mono dim">{session.id}</td>
                      <td class="num">{count(session.held)}</td>
                      <td class="num">{session.lost > 0 ? <State of="lost">{count(session.lost)}</State> : <span class="dim">0</span>}</td>
                      <td class="num">{duration(session.expires_in_ms)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Show>
    </Panel>
  );
}
