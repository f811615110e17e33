import type { Holder } from "./api/types";

const NONE = "–";

/** `1.2 s`, `4 m 05 s`, `2 h 10 m`: two units at most. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return NONE;
  const whole = Math.max(0, ms);
  if (whole < 1000) return `${Math.round(whole)} ms`;
  if (whole < 10_000) return `${(whole / 1000).toFixed(1)} s`;
  const seconds = Math.round(whole / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${two(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${two(minutes % 60)} m`;
  return `${Math.floor(hours / 24)} d ${two(hours % 24)} h`;
}

/** Whole seconds, for what counts down or up once a second. */
export function seconds(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return NONE;
  return ms < 60_000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : duration(ms);
}

export function ago(ms: number): string {
  return ms < 1500 ? "just now" : `${seconds(ms)} ago`;
}

/** The local time of day, with the date unless it is today. */
export function clock(at_ms: number): string {
  const at = new Date(at_ms);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const today = new Date().toDateString() === at.toDateString();
  return today ? time : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

export function count(n: number | null | undefined): string {
  if (n === null || n === undefined) return NONE;
  return n.toLocaleString("en-US");
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** `late_renewal` as people write it. */
export function words(code: string): string {
  return code.replaceAll("_", " ");
}

export function holderLabel(holder: Holder | null): string {
  if (!holder) return NONE;
  if (holder.kind === "foreign") return "another library";
  return holder.label || holder.host;
}

/** Where the holder runs; empty if nothing is known. */
export function holderPlace(holder: Holder | null): string {
  return holder?.kind === "leasehold" ? `${holder.host}, pid ${holder.pid}` : "";
}

function two(n: number): string {
  return String(n).padStart(2, "0");
}
