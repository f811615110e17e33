import type { ComponentChildren } from "preact";
import type { Problem } from "../api/client";
import type { Fetched } from "../live/fetched";
import { Command } from "./command";
import { Icon } from "./icon";

/** Nothing to show, why, and the command that starts something. */
export function Empty({ title, children, command }: { title: string; children?: ComponentChildren; command?: string }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <p>{children}</p>}
      {command && <Command text={command} />}
    </div>
  );
}

export function Loading({ rows = 4 }: { rows?: number }) {
  return (
    <div class="loading" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, row) => (
        <span key={row} />
      ))}
    </div>
  );
}

export function ProblemNote({ problem, retry }: { problem: Problem; retry?: () => void }) {
  const { title, hint, kind } = problem.body;
  return (
    <div class="notice bad" role="alert">
      <Icon name="warn" />
      <div>
        <strong>{sentence(title)}</strong>
        <p>
          {sentence(problem.message)} {hint && sentence(hint)}
        </p>
        <p class="dim">
          Kind <code>{kind}</code>
        </p>
      </div>
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** The data once it is here; before that, that it is loading; above it, a problem if there is one. */
export function Show<T>({ of, children }: { of: Fetched<T>; children: (data: T) => ComponentChildren }) {
  return (
    <>
      {of.problem && <ProblemNote problem={of.problem} retry={of.refresh} />}
      {of.data !== null ? children(of.data) : of.loading && !of.problem ? <Loading /> : null}
    </>
  );
}

function sentence(text: string): string {
  if (!text) return "";
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
