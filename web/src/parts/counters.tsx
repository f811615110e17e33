import type { Tone } from "./state";

export interface Counter {
  label: string;
  value: string;
  /** The page that has the details. */
  to?: string;
  tone?: Tone;
}

/** The numbers of this moment, side by side. */
export function Counters({ counters, note }: { counters: Counter[]; note?: string | false }) {
  return (
    <ul class="counters" aria-label="Now">
      {counters.map(({ label, value, to, tone = "plain" }) => {
        const shown = (
          <>
            <span>{label}</span>
            <b>{value}</b>
          </>
        );
        return (
          <li key={label} class={tone}>
            {to === undefined ? <div>{shown}</div> : <a href={to}>{shown}</a>}
          </li>
        );
      })}
      {note && <li class="counters-note">{note}</li>}
    </ul>
  );
}
