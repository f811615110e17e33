import type { ComponentChildren } from "preact";
import { useCell } from "../cell";
import { overview } from "../live/overview";
import { whoami } from "../live/whoami";
import { location } from "../router";
import { Icon, type IconName } from "./icon";
import { Search } from "./search";
import { Banner, LiveSwitch, ReadOnlyBadge, StoreBadge, ThemeSwitch } from "./status";

const MENU: [string, [string, string, IconName][]][] = [
  [
    "Watch",
    [
      ["/", "Overview", "overview"],
      ["/locks", "Locks", "locks"],
      ["/contention", "Who waited", "contention"],
      ["/elections", "Elections", "elections"],
    ],
  ],
  [
    "Work",
    [
      ["/idempotency", "Idempotency", "idempotency"],
      ["/markers", "Markers", "markers"],
      ["/deadlines", "Deadlines", "deadlines"],
    ],
  ],
  [
    "Service",
    [
      ["/nodes", "Nodes", "nodes"],
      ["/audit", "Audit", "audit"],
    ],
  ],
  ["Learn", [["/playground", "Playground", "playground"]]],
];

export function Shell({ children }: { children: ComponentChildren }) {
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <Menu />
      <div class="frame">
        <header class="top">
          <Search />
          <div class="top-status">
            <ReadOnlyBadge />
            <StoreBadge />
            <LiveSwitch />
            <ThemeSwitch />
          </div>
        </header>
        <Banner />
        <main id="content" tabIndex={-1}>
          {children}
        </main>
      </div>
    </>
  );
}

function Menu() {
  const { path } = useCell(location);
  const counters = useCell(overview)?.counters;
  const me = useCell(whoami);
  const current = path === "/lock" ? "/locks" : path;
  const counts: Record<string, number | undefined> = { "/locks": counters?.names, "/deadlines": counters?.deadlines_due };
  return (
    <nav class="menu" aria-label="Pages">
      <a class="brand" href="/">
        <span class="mark" aria-hidden="true">
          <Icon name="locks" />
        </span>
        Leasehold
      </a>
      {MENU.map(([group, pages]) => (
        <div key={group} class="menu-group">
          <p>{group}</p>
          <ul>
            {pages.map(([to, title, icon]) => (
              <li key={to}>
                <a href={to} aria-current={to === current ? "page" : undefined}>
                  <Icon name={icon} />
                  {title}
                  {counts[to] ? <span class="menu-count">{counts[to]}</span> : null}
                </a>
              </li>
            ))}
          </ul>
        </div>
      ))}
      {me && (
        <p class="menu-foot">
          version {me.version}
          {me.token && <span> · token {me.token}</span>}
        </p>
      )}
    </nav>
  );
}
