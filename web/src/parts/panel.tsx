import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Props {
  title: string;
  note?: ComponentChildren;
  aside?: ComponentChildren;
  flush?: boolean;
  children: ComponentChildren;
}

/** A titled part of a page. `flush` leaves no space around tables. */
export function Panel({ title, note, aside, flush = false, children }: Props) {
  const id = useId();
  return (
    <section class={flush ? "panel flush" : "panel"} aria-labelledby={id}>
      <header class="panel-head">
        <h2 id={id}>{title}</h2>
        {note && <p class="note">{note}</p>}
        {aside && <div class="panel-aside">{aside}</div>}
      </header>
      {children}
    </section>
  );
}

/** The heading of a page. `actions` stand at the right. */
export function PageHead({ title, lead, actions }: { title: ComponentChildren; lead?: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <header class="page-head">
      <div>
        <h1 tabIndex={-1}>{title}</h1>
        {lead && <p class="lead">{lead}</p>}
      </div>
      {actions && <div class="page-actions">{actions}</div>}
    </header>
  );
}

/** Pairs of a name and a value. */
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
