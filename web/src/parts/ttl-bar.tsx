import { plural, seconds } from "../format";

/** More marks than this cannot be told apart. */
const TICKS_MAX = 12;

interface Props {
  expires_in_ms: number | null;
  ttl_ms: number | null;
  renewals: number;
  /** How long ago these numbers were true. */
  age_ms: number;
}

/** How much of its lease a holder has left, and one mark for each renewal. */
export function TtlBar({ expires_in_ms, ttl_ms, renewals, age_ms }: Props) {
  if (expires_in_ms === null) return <span class="dim">no expiry</span>;
  const left_ms = Math.max(0, expires_in_ms - Math.max(0, age_ms));
  const share = ttl_ms ? Math.min(1, left_ms / ttl_ms) : 1;
  const tone = share < 0.2 ? "low" : "";
  return (
    <span class="ttl" title={`${seconds(left_ms)} left${ttl_ms === null ? "" : ` of ${seconds(ttl_ms)}`}, ${plural(renewals, "renewal")} seen`}>
      {ttl_ms !== null && (
        <span class={`ttl-bar ${tone}`} aria-hidden="true">
          <span style={{ transform: `scaleX(${share.toFixed(3)})` }} />
        </span>
      )}
      <span class="ttl-left">{seconds(left_ms)}</span>
      {renewals > 0 && (
        <span class="ttl-ticks" aria-hidden="true">
          {Array.from({ length: Math.min(renewals, TICKS_MAX) }, (_, tick) => (
            <i key={tick} />
          ))}
          {renewals > TICKS_MAX && <b>+{renewals - TICKS_MAX}</b>}
        </span>
      )}
      {renewals > 0 && <span class="visually-hidden">{plural(renewals, "renewal")}</span>}
    </span>
  );
}
