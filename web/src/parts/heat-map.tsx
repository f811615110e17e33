import type { PoolDetail } from "../api/types";
import { clock, count, duration } from "../format";

const ROW_PX = 26;
const CELL_PX = 10;

/** Counts over time as colours: one row each for pending, due, and how late. The last values stand at the right as text. */
export function HeatMap({ heat }: { heat: PoolDetail["heat"] }) {
  const rows: [string, number[], (value: number) => string][] = [
    ["pending", heat.pending, count],
    ["due", heat.due, count],
    ["overdue", heat.overdue_ms, (ms) => (ms > 0 ? duration(ms) : "–")],
  ];
  const length = heat.at_ms.length;
  const width = Math.max(length, 60) * CELL_PX;
  return (
    <table class="heat-map">
      <tbody>
        {rows.map(([label, values, format]) => {
          const most = Math.max(1, ...values);
          return (
            <tr key={label}>
              <th scope="row">{label}</th>
              <td class="heat-cells" aria-hidden="true">
                <svg viewBox={`0 0 ${width} ${ROW_PX}`} preserveAspectRatio="none" height={ROW_PX} width="100%">
                  {values.map((value, index) => (
                    <rect
                      key={heat.at_ms[index]}
                      class={`heat-${Math.ceil((5 * value) / most)}`}
                      x={index * CELL_PX}
                      width={CELL_PX - 1}
                      height={ROW_PX - 4}
                    >
                      <title>{`${clock(heat.at_ms[index] ?? 0)}: ${format(value)} ${label}`}</title>
                    </rect>
                  ))}
                </svg>
              </td>
              <td class="num">
                <b>{format(values.at(-1) ?? 0)}</b> <span class="dim">at most {format(Math.max(0, ...values))}</span>
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
