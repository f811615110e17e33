import type { Tenure } from "../api/types";
import { clock, duration, holderLabel } from "../format";
import { serviceNow } from "../live/overview";
import { State } from "./state";

const LANES_MAX = 8;
const ROWS_MAX = 12;
const LANE_PX = 24;

/** Who held the lock when: one lane per holder, and the latest tenures as a table. */
export function Timeline({ tenures }: { tenures: Tenure[] }) {
  const now = serviceNow();
  const from = Math.min(...tenures.map((tenure) => tenure.from_ms));
  const span = Math.max(1000, now - from);
  const labels = [...new Set(tenures.map((tenure) => holderLabel(tenure.holder)))];
  const lanes = labels.slice(0, LANES_MAX);
  const share = (ms: number) => `${((100 * ms) / span).toFixed(3)}%`;
  return (
    <>
      <div class="timeline" role="img" aria-label={`${tenures.length} tenures of ${labels.length} holders within ${duration(span)}`}>
        <div class="lane-names" aria-hidden="true">
          {lanes.map((label) => (
            <span key={label} title={label}>
              {label}
            </span>
          ))}
        </div>
        <svg width="100%" height={lanes.length * LANE_PX} aria-hidden="true">
          {lanes.map((label, lane) => (
            <line key={label} class="lane" x1="0" x2="100%" y1={lane * LANE_PX + LANE_PX / 2} y2={lane * LANE_PX + LANE_PX / 2} />
          ))}
          {tenures.map((tenure) => {
            const lane = lanes.indexOf(holderLabel(tenure.holder));
            const until = tenure.to_ms ?? now;
            return (
              lane >= 0 && (
                <rect
                  key={tenure.fence}
                  class={`tenure ${tenure.ended ?? "held"}`}
                  x={share(tenure.from_ms - from)}
                  y={lane * LANE_PX + 4}
                  width={share(until - tenure.from_ms)}
                  height={LANE_PX - 8}
                  rx="2"
                >
                  <title>{`fence ${tenure.fence}: ${duration(until - tenure.from_ms)}, ${tenure.ended ?? "held now"}`}</title>
                </rect>
              )
            );
          })}
        </svg>
        <div class="time-ends dim" aria-hidden="true">
          <span>{clock(from)}</span>
          <span>now</span>
        </div>
      </div>
      <div class="scroll">
        <table class="rows">
          <thead>
            <tr>
              <th scope="col" class="num">
                Fence
              </th>
              <th scope="col">Holder</th>
              <th scope="col">From</th>
              <th scope="col" class="num">
                For
              </th>
              <th scope="col">Ended</th>
              <th scope="col" class="num">
                Renewals
              </th>
              <th scope="col" class="num">
                Most waiters
              </th>
            </tr>
          </thead>
          <tbody>
            {tenures.slice(0, ROWS_MAX).map((tenure) => (
              <tr key={tenure.fence}>
                <td class="num">{tenure.fence}</td>
                <td>{holderLabel(tenure.holder)}</td>
                <td>{clock(tenure.from_ms)}</td>
                <td class="num">{duration((tenure.to_ms ?? now) - tenure.from_ms)}</td>
                <td>{tenure.ended ? <State of={tenure.ended} /> : <State of="held">held now</State>}</td>
                <td class="num">{tenure.renewals}</td>
                <td class="num">{tenure.waiters_max}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {tenures.length > ROWS_MAX && <p class="dim">The {ROWS_MAX} latest of {tenures.length} tenures.</p>}
    </>
  );
}
