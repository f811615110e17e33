import { count, duration, plural } from "../format";

/** How often something took how long. `bounds_ms` are upper bounds; the last one is open. */
export function Histogram({ bounds_ms, counts }: { bounds_ms: (number | null)[]; counts: number[] }) {
  const most = Math.max(1, ...counts);
  const total = counts.reduce((sum, n) => sum + n, 0);
  return (
    <table class="histogram">
      <caption class="visually-hidden">{plural(total, "tenure")} by their length</caption>
      <tbody>
        {counts.map((n, index) => (
          <tr key={index}>
            <th scope="row">{range(bounds_ms, index)}</th>
            <td class="histogram-bar" aria-hidden="true">
              <span style={{ width: `${(100 * n) / most}%` }} />
            </td>
            <td class="num">{count(n)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function range(bounds_ms: (number | null)[], index: number): string {
  const [under, from] = [bounds_ms[index] ?? null, bounds_ms[index - 1] ?? null];
  if (under !== null) return `under ${bound(under)}`;
  return from === null ? "any" : `${bound(from)} and more`;
}

function bound(ms: number): string {
  if (ms >= 60_000 && ms % 60_000 === 0) return `${ms / 60_000} m`;
  return ms >= 1000 && ms % 1000 === 0 ? `${ms / 1000} s` : duration(ms);
}
