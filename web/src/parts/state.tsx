import type { Holder } from "../api/types";
import { holderLabel, holderPlace, words } from "../format";

export type Tone = "good" | "wait" | "bad" | "plain" | "info";

const TONES: Record<string, Tone> = {
  held: "good",
  holding: "good",
  led: "good",
  completed: "good",
  released: "plain",
  votes: "good",
  waiting: "wait",
  running: "wait",
  waits: "wait",
  paused: "wait",
  expired: "wait",
  handed_over: "info",
  marked: "info",
  forced: "bad",
  failed: "bad",
  lost: "bad",
  crashed: "bad",
  corrupt: "bad",
  quarantined: "bad",
  rejected: "bad",
  unreachable: "bad",
  vacant: "wait",
};

/** A state: always a word, with a colour beside it. */
export function State({ of, tone, children }: { of: string; tone?: Tone; children?: string }) {
  return <span class={`state ${tone ?? TONES[of] ?? "plain"}`}>{children ?? words(of)}</span>;
}

export function HolderName({ holder }: { holder: Holder | null }) {
  const place = holderPlace(holder);
  return (
    <span class="holder">
      <span class="holder-label">{holderLabel(holder)}</span>
      {place && <span class="dim holder-place">{place}</span>}
    </span>
  );
}
