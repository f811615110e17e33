import { useCell } from "../cell";
import { clock, duration } from "../format";
import { useNow } from "../live/clock";
import { connection, pause, resume } from "../live/connection";
import { overview, serviceNow } from "../live/overview";
import { whoami } from "../live/whoami";
import { setTheme, theme, type Theme } from "../theme";
import { Icon, type IconName } from "./icon";

export function StoreBadge() {
  const store = useCell(overview)?.store;
  const me = useCell(whoami);
  if (!store) return <span class="badge">{me?.store ?? "store"}</span>;
  return (
    <a class={`badge ${store.reachable ? "good" : "bad"}`} href="/nodes" title={store.url}>
      <i class="dot" aria-hidden="true" />
      <b>{store.engine}</b>
      <span>{store.reachable ? "reachable" : "unreachable"}</span>
    </a>
  );
}

export function ReadOnlyBadge() {
  const [whole, me] = [useCell(overview), useCell(whoami)];
  return (whole ?? me)?.read_only ? <span class="badge wait">read-only</span> : null;
}

const WORDS = { connecting: "connecting", live: "live", paused: "paused", lost: "disconnected", draining: "stopping" };
const TONES = { connecting: "", live: "good", paused: "wait", lost: "bad", draining: "wait" };

/** Whether events flow, and a switch that stops them on this page. */
export function LiveSwitch() {
  const { state } = useCell(connection);
  const paused = state === "paused";
  return (
    <span class={`badge live ${TONES[state]}`}>
      <i class="dot" aria-hidden="true" />
      <span role="status">{WORDS[state]}</span>
      <button
        type="button"
        class="quiet"
        aria-pressed={paused}
        aria-label={paused ? "Resume live updates" : "Pause live updates"}
        title={paused ? "Resume live updates" : "Pause live updates"}
        onClick={paused ? resume : pause}
      >
        <Icon name={paused ? "play" : "pause"} />
      </button>
    </span>
  );
}

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const ICONS: Record<Theme, IconName> = { system: "system", light: "sun", dark: "moon" };

export function ThemeSwitch() {
  const chosen = useCell(theme);
  const label = `Colours: ${chosen}. Change to ${NEXT[chosen]}.`;
  return (
    <button type="button" class="quiet theme" aria-label={label} title={label} onClick={() => setTheme(NEXT[chosen])}>
      <Icon name={ICONS[chosen]} />
    </button>
  );
}

/** What must be known on every page: the store is gone, the service stops, or events do not arrive. */
export function Banner() {
  const { state, since_ms, why } = useCell(connection);
  const store = useCell(overview)?.store;
  const now = useNow();
  if (state === "lost") {
    return (
      <div class="banner bad" role="alert">
        <strong>No updates since {clock(since_ms)}</strong> ({duration(now - since_ms)}). {why ?? "The service does not answer."} What
        you see is old; the page reconnects by itself and goes on where it stopped.
      </div>
    );
  }
  if (store && !store.reachable) {
    const gone_ms = Math.max(0, serviceNow() - store.since_ms);
    return (
      <div class="banner bad" role="alert">
        <strong>The store has been unreachable since {clock(store.since_ms)}</strong> ({duration(gone_ms)}). {store.error}
      </div>
    );
  }
  if (state === "draining") {
    return (
      <div class="banner wait" role="status">
        <strong>The service is stopping.</strong> Locks that are held stay held. This page reconnects once it is back.
      </div>
    );
  }
  if (state === "paused") {
    return (
      <div class="banner wait" role="status">
        <strong>Paused at {clock(since_ms)}.</strong> Nothing on this page changes until you resume.
      </div>
    );
  }
  return null;
}
