import { useEffect, useReducer } from "preact/hooks";

/** A value that components follow. */
export interface Cell<T> {
  readonly value: T;
  set(value: T): void;
  subscribe(changed: () => void): () => void;
}

export function cell<T>(initial: T): Cell<T> {
  let value = initial;
  const followers = new Set<() => void>();
  return {
    get value() {
      return value;
    },
    set(next) {
      if (Object.is(value, next)) return;
      value = next;
      for (const changed of [...followers]) changed();
    },
    subscribe(changed) {
      followers.add(changed);
      return () => followers.delete(changed);
    },
  };
}

export function useCell<T>(followed: Cell<T>): T {
  const [, draw] = useReducer<number, void>((count) => count + 1, 0);
  const shown = followed.value;
  useEffect(() => {
    // It may have changed between this render and its effects.
    if (!Object.is(followed.value, shown)) draw();
    return followed.subscribe(() => draw());
  }, [followed]);
  return shown;
}
