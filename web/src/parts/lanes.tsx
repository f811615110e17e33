import { LANES_MS, type Lane } from "../live/lanes";

const LANE_PX = 30;
const LEGEND: [string, string][] = [
  ["holding", "holds"],
  ["waiting", "waits"],
  ["paused", "paused, lease valid"],
  ["stale", "paused, lease over"],
  ["crashed", "crashed"],
];

/** One lane for each worker: what it did when, its accepted writes as dots, refused ones as crosses. */
export function Lanes({ lanes, now_ms }: { lanes: Lane[]; now_ms: number }) {
  if (lanes.length === 0) return null;
  const from = now_ms - LANES_MS;
  const share = (ms: number) => (100 * Math.max(0, ms)) / LANES_MS;
  return (
    <div class="lanes">
      <div class="legend" aria-hidden="true">
        {LEGEND.map(([kind, text]) => (
          <span key={kind}>
            <i class={`swatch lane-${kind}`} />
            {text}
          </span>
        ))}
        <span>
          <i class="write-dot" />
          write accepted
        </span>
        <span>
          <i class="write-cross">×</i>
          write refused
        </span>
      </div>
      <div class="timeline" role="img" aria-label="What each worker did, as the log below says">
        <div class="lane-names" aria-hidden="true">
          {lanes.map(({ worker }) => (
            <span key={worker.id}>{worker.label}</span>
          ))}
        </div>
        <svg width="100%" height={lanes.length * LANE_PX} aria-hidden="true">
          {lanes.map(({ worker, spans, marks }, lane) => (
            <g key={worker.id} transform={`translate(0 ${lane * LANE_PX})`}>
              <line class="lane" x1="0" x2="100%" y1={LANE_PX / 2} y2={LANE_PX / 2} />
              {spans.map((span) => {
                const start = Math.max(span.from_ms, from);
                const kind = span.stale ? "stale" : span.state;
                return (
                  <rect
                    key={span.from_ms}
                    class={`lane-${kind}`}
                    x={`${share(start - from)}%`}
                    width={`${share(span.to_ms - start)}%`}
                    y={kind === "waiting" ? LANE_PX / 2 - 2 : 6}
                    height={kind === "waiting" ? 4 : LANE_PX - 12}
                    rx="2"
                  >
                    <title>{`${kind}${span.fence === null ? "" : `, fence ${span.fence}`}`}</title>
                  </rect>
                );
              })}
              {marks.map(({ at_ms, kind }) =>
                at_ms < from ? null : kind === "wrote" ? (
                  <circle key={`w${at_ms}`} class="write" cx={`${share(at_ms - from)}%`} cy={LANE_PX / 2} r="2.5" />
                ) : (
                  <text key={`r${at_ms}`} class="refused" x={`${share(at_ms - from)}%`} y={LANE_PX / 2 + 7}>
                    ×
                  </text>
                ),
              )}
            </g>
          ))}
        </svg>
        <div class="time-ends dim" aria-hidden="true">
          <span>{LANES_MS / 1000} s ago</span>
          <span>now</span>
        </div>
      </div>
    </div>
  );
}
