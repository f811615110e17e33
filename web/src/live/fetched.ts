import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Problem, call, tokenWanted } from "../api/client";
import { connection, on } from "./connection";

export interface Fetched<T> {
  data: T | null;
  problem: Problem | null;
  loading: boolean;
  /** When `data` arrived, by the clock of this computer. */
  at: number;
  refresh(): void;
}

/** What the service has under a path. It is asked again after a snapshot, and every `every_ms` while events flow. */
export function useFetched<T>(url: string | null, every_ms = 0): Fetched<T> {
  const [state, setState] = useState<{ url: string | null; data: T | null; problem: Problem | null; at: number }>({
    url: null,
    data: null,
    problem: null,
    at: 0,
  });
  const [loading, setLoading] = useState(url !== null);
  const running = useRef<AbortController | null>(null);

  const refresh = useCallback(() => {
    running.current?.abort();
    if (url === null) return;
    const abort = new AbortController();
    running.current = abort;
    setLoading(true);
    call<T>(url, { signal: abort.signal })
      .then((data) => ({ data, problem: null }))
      .catch((cause: unknown) => ({ data: null, problem: Problem.from(cause) }))
      .then(({ data, problem }) => {
        if (abort.signal.aborted) return;
        setLoading(false);
        setState((before) => {
          const kept = before.url === url && problem?.body.status !== 404 ? before.data : null;
          return { url, data: data ?? kept, problem, at: problem ? before.at : Date.now() };
        });
      });
  }, [url]);

  useEffect(() => {
    refresh();
    const stopSnapshots = on("snapshot", refresh);
    const stopTokens = tokenWanted.subscribe(() => tokenWanted.value || refresh());
    const timer = every_ms > 0 ? setInterval(() => isFlowing() && refresh(), every_ms) : undefined;
    return () => {
      stopSnapshots();
      stopTokens();
      clearInterval(timer);
      running.current?.abort();
    };
  }, [refresh, every_ms]);

  const fresh = state.url === url;
  return {
    data: fresh ? state.data : null,
    problem: fresh ? state.problem : null,
    loading: loading || (!fresh && url !== null),
    at: state.at,
    refresh,
  };
}

function isFlowing(): boolean {
  return connection.value.state === "live" && !document.hidden;
}
