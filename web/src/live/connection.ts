import { Problem, request, tokenWanted, withQuery } from "../api/client";
import { Parser, type Message } from "../api/stream";
import { cell } from "../cell";

export type Topic = "overview" | "locks" | "audit" | "playground";

export interface Connection {
  state: "connecting" | "live" | "paused" | "lost" | "draining";
  /** By the clock of this computer. */
  since_ms: number;
  why: string | null;
}

export const connection = cell<Connection>({ state: "connecting", since_ms: Date.now(), why: null });

/** Messages arrive at least every 10 s; without one for this long the connection is dead. */
const SILENCE_MAX_MS = 25_000;
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 8_000;

type Handler = (data: unknown) => void;

const handlers = new Map<string, Set<Handler>>();
let topics: Topic[] = ["overview", "audit"];
let prefix = "";
let lastId: string | null = null;
let stop: AbortController | null = null;
let round = 0;

/** Calls `handler` with the data of every message of this name. */
export function on<T>(event: string, handler: (data: T) => void): () => void {
  const set = handlers.get(event) ?? new Set();
  handlers.set(event, set.add(handler as Handler));
  return () => set.delete(handler as Handler);
}

/** What this page follows. Other topics need another stream, which starts with a snapshot. */
export function follow(more: Topic[], names = ""): void {
  const wanted: Topic[] = ["overview", "audit", ...more];
  if (wanted.join() === topics.join() && names === prefix && stop) return;
  topics = wanted;
  prefix = names;
  lastId = null;
  if (connection.value.state !== "paused") start();
}

/** The stream ends, and what is shown stays as it is. */
export function pause(): void {
  round += 1;
  stop?.abort();
  stop = null;
  become("paused");
}

/** Goes on after the last message that was seen. */
export function resume(): void {
  become("connecting");
  start();
}

export function start(): void {
  round += 1;
  stop?.abort();
  void run(round);
}

async function run(mine: number): Promise<void> {
  let failures = 0;
  while (mine === round) {
    try {
      await readOnce(mine, () => {
        failures = 0;
      });
      throw new Error("the stream ended");
    } catch (cause) {
      if (mine !== round) return;
      const known = cause instanceof Problem ? cause : null;
      if (connection.value.state !== "draining") become("lost", known?.message ?? null);
      if (known?.body.status === 400) lastId = null;
      if (known && [401, 403].includes(known.body.status)) return void waitForToken(mine);
    }
    failures += 1;
    const longest = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** failures);
    await new Promise((done) => setTimeout(done, longest * (0.5 + Math.random() / 2)));
  }
}

function waitForToken(mine: number): void {
  const stopWaiting = tokenWanted.subscribe(() => {
    stopWaiting();
    if (mine === round) start();
  });
}

async function readOnce(mine: number, arrived: () => void): Promise<void> {
  const abort = new AbortController();
  stop = abort;
  let watchdog = setTimeout(() => abort.abort(), SILENCE_MAX_MS);
  try {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (lastId !== null) headers["Last-Event-ID"] = lastId;
    const url = withQuery("/v1/events", { topics: topics.join(","), prefix });
    const response = await request(url, { headers, signal: abort.signal });
    if (!response.body) throw new Error("no body");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new Parser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || mine !== round) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort(), SILENCE_MAX_MS);
      for (const message of parser.feed(value)) dispatch(message);
      arrived();
    }
  } finally {
    clearTimeout(watchdog);
    abort.abort();
  }
}

function dispatch(message: Message): void {
  if (message.id !== null) lastId = message.id;
  if (message.event === "draining") become("draining");
  else if (connection.value.state !== "live") become("live");
  const data: unknown = JSON.parse(message.data);
  for (const handler of [...(handlers.get(message.event) ?? [])]) handler(data);
}

function become(state: Connection["state"], why: string | null = null): void {
  const { state: before, since_ms } = connection.value;
  connection.set({ state, why, since_ms: before === state ? since_ms : Date.now() });
}
