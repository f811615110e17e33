import { cell } from "../cell";
import type { ProblemBody } from "./types";

const TOKEN = "leasehold.token";

/** A refusal of the service, or that there was no answer from it. */
export class Problem extends Error {
  readonly body: ProblemBody;

  constructor(body: ProblemBody) {
    super(body.detail || body.title);
    this.body = body;
  }

  get kind(): string {
    return this.body.kind;
  }

  static from(cause: unknown): Problem {
    if (cause instanceof Problem) return cause;
    const detail = "The service did not answer. Is `leasehold serve` still running?";
    return new Problem({ title: "no answer from the service", status: 0, detail, kind: "offline", retry: true });
  }
}

/** True once the service has asked for a token, or has refused the one it was given. */
export const tokenWanted = cell(false);

export function setToken(token: string): void {
  sessionStorage.setItem(TOKEN, token);
  tokenWanted.set(false);
}

export function forgetToken(): void {
  sessionStorage.removeItem(TOKEN);
}

export interface Call {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export async function request(path: string, { method = "GET", body, headers, signal }: Call = {}): Promise<Response> {
  const all: Record<string, string> = { ...headers };
  const token = sessionStorage.getItem(TOKEN);
  if (token) all["Authorization"] = `Bearer ${token}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  const init: RequestInit = { method, headers: all, credentials: "omit", cache: "no-store" };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (signal) init.signal = signal;
  const response = await fetch(path, init);
  if (response.ok) return response;
  if (response.status === 401) tokenWanted.set(true);
  throw new Problem(await problemOf(response));
}

async function problemOf(response: Response): Promise<ProblemBody> {
  const { status, statusText } = response;
  try {
    const body = (await response.json()) as Partial<ProblemBody>;
    return { ...body, status, title: body.title ?? statusText, detail: body.detail ?? "", kind: body.kind ?? "internal" };
  } catch {
    return { status, title: statusText, detail: `The service answered ${status} without a reason.`, kind: "internal" };
  }
}

/** Parses the answer; `null` where there is no body. */
export async function call<T>(path: string, options?: Call): Promise<T> {
  const response = await request(path, options);
  return (response.status === 204 ? null : await response.json()) as T;
}

/** A path with its segments encoded: names may contain slashes and colons. */
export function path(...segments: string[]): string {
  return `/v1/${segments.map(encodeURIComponent).join("/")}`;
}

/** Adds a query, without what is empty. */
export function withQuery(base: string, query: Record<string, string | number | boolean | null | undefined>): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) params.set(key, String(value));
  }
  const text = params.toString();
  return text ? `${base}?${text}` : base;
}
