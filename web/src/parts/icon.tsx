/** Outlines on a grid of 16. */
const SHAPES = {
  overview: "M2 13.5h12M3.5 11V7.5M6.5 11V4M9.5 11V6.5M12.5 11V2.5",
  locks: "M5 7V5a3 3 0 0 1 6 0v2M3.5 7h9v6.5h-9z",
  contention: "M5.5 5.5a2 2 0 1 0 0-.01M2 13c0-3 1.5-4.5 3.5-4.5S9 10 9 13M10.5 7a1.7 1.7 0 1 0 0-.01M11 9.200c1.800 0 3 1.300 3 3.800",
  idempotency: "M3 8a5 5 0 0 1 8.500-3.500L13 6M13 2.500V6H9.500M13 8a5 5 0 0 1-8.500 3.500L3 10M3 13.500V10h3.500",
  markers: "M4 14V2.500h7.500L9.500 5.500l2 3H4",
  deadlines: "M8 14A5.500 5.500 0 1 0 8 3a5.500 5.500 0 0 0 0 11zM8 5.500v3l2 1.500M6.500 1.200h3",
  elections: "M2.500 5l2.500 2.500L8 3l3 4.500L13.500 5l-1 7.500h-9z",
  nodes: "M3 2.500h10v4.500H3zM3 9h10v4.500H3zM5.200 4.750h.01M5.200 11.250h.01",
  audit: "M4 2h8v12H4zM6 5h4M6 8h4M6 11h2",
  playground: "M5 3v10l8-5z",
  search: "M7 11.500A4.500 4.500 0 1 0 7 2.500a4.500 4.500 0 0 0 0 9zM10.300 10.300L14 14",
  pause: "M5.500 3.500v9M10.500 3.500v9",
  play: "M5 3v10l8-5z",
  sun: "M8 10.800a2.800 2.800 0 1 0 0-5.600 2.800 2.800 0 0 0 0 5.600zM8 1.500v1.300M8 13.200v1.300M1.500 8h1.300M13.200 8h1.300M3.400 3.400l.9.9M11.700 11.700l.9.9M12.600 3.400l-.9.9M4.300 11.700l-.9.9",
  moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3 5.500 5.500 0 1 0 13 9.500z",
  system: "M2 3h12v8H2zM6 13.500h4",
  copy: "M5.500 5.500h8v8h-8zM3 10.500H2.500v-8h8V3",
  check: "M3 8.500l3.300 3.300L13 5",
  close: "M4 4l8 8M12 4l-8 8",
  warn: "M8 2l6.500 11.500h-13zM8 6.500v3.200M8 11.500v.01",
  plus: "M8 3v10M3 8h10",
};

export type IconName = keyof typeof SHAPES;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={SHAPES[name]} />
    </svg>
  );
}
