import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useCell } from "../cell";
import { colour, palette } from "../theme";

export interface Line {
  label: string;
  /** The name of a colour of the style sheet. */
  colour: string;
  fill?: boolean;
  dash?: boolean;
  values: (number | null)[];
}

/** With fewer seconds than this the times on the axis would repeat. */
const SPAN_MIN_S = 60;

interface Props {
  label: string;
  /** Milliseconds. */
  at: number[];
  lines: Line[];
  height?: number;
  format: (value: number) => string;
}

/** Lines over time. The legend has the last values as text. */
export function Chart({ label, at, lines, height = 160, format }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shades = useCell(palette);
  const data: uPlot.AlignedData = [at.map((ms) => ms / 1000), ...lines.map((line) => line.values)];
  const latest = useRef(data);
  latest.current = data;

  useEffect(() => {
    const parent = box.current;
    if (!parent) return;
    const chart = new uPlot(options(parent.clientWidth, height, lines, format), latest.current, parent);
    plot.current = chart;
    const observer = new ResizeObserver(() => chart.setSize({ width: parent.clientWidth, height }));
    observer.observe(parent);
    return () => {
      observer.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [shades, height, lines.map((line) => line.label).join()]);

  useEffect(() => plot.current?.setData(latest.current));

  return (
    <figure class="chart">
      <figcaption class="legend">
        <span class="visually-hidden">{label}: </span>
        {lines.map((line) => (
          <span key={line.label}>
            <i class={`swatch ${line.colour}`} aria-hidden="true" />
            {line.label} <b>{last(line, format)}</b>
          </span>
        ))}
      </figcaption>
      <div ref={box} class="chart-box" role="img" aria-label={label} />
    </figure>
  );
}

function last(line: Line, format: (value: number) => string): string {
  const value = line.values.findLast((value) => value !== null);
  return value === undefined || value === null ? "–" : format(value);
}

function options(width: number, height: number, lines: Line[], format: (value: number) => string): uPlot.Options {
  const axis = {
    stroke: colour("dim"),
    grid: { stroke: colour("line-soft"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return {
    width,
    height,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    scales: { x: { range: (_, min, max) => [Math.min(min, max - SPAN_MIN_S), max] }, y: { range: (_, __, max) => [0, Math.max(1, (max ?? 1) * 1.1)] } },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 26, values: (_, ticks) => ticks.map(timeOfDay) },
      { ...axis, size: 52, space: 34, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) || tick < 1 ? format(tick) : "")) },
    ],
    series: [
      {},
      ...lines.map((line): uPlot.Series => {
        const stroke = colour(`${line.colour}-fill`);
        return {
          label: line.label,
          stroke,
          width: 1.75,
          points: { show: false },
          spanGaps: false,
          ...(line.fill ? { fill: `color-mix(in srgb, ${stroke} 14%, transparent)` } : {}),
          ...(line.dash ? { dash: [4, 3] } : {}),
        };
      }),
    ],
  };
}

function timeOfDay(second: number): string {
  const at = new Date(second * 1000);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}
