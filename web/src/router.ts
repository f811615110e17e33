import { cell } from "./cell";

export interface Location {
  path: string;
  query: URLSearchParams;
}

function here(): Location {
  return { path: window.location.pathname.replace(/\/+$/, "") || "/", query: new URLSearchParams(window.location.search) };
}

export const location = cell<Location>(here());

export function navigate(to: string, replace = false): void {
  if (replace) history.replaceState(history.state, "", to);
  else history.pushState(null, "", to);
  location.set(here());
}

/** Changes parts of the query; an empty value removes its key. A change of filters goes back to the first page. */
export function setQuery(changes: Record<string, string>, replace = false): void {
  const query = new URLSearchParams(window.location.search);
  if (!("from" in changes)) query.delete("from");
  for (const [key, value] of Object.entries(changes)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const text = query.toString();
  navigate(window.location.pathname + (text ? `?${text}` : ""), replace);
}

export function link(page: string, query: Record<string, string> = {}): string {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return page + (text ? `?${text}` : "");
}

export const lockLink = (name: string) => link("/lock", { name });

/** Links inside of the dashboard change the page without loading it. */
export function listen(): void {
  addEventListener("popstate", () => location.set(here()));
  document.addEventListener("click", (event) => {
    const anchor = (event.target as Element | null)?.closest?.("a");
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!anchor || !plain || event.defaultPrevented || anchor.target || anchor.hasAttribute("download")) return;
    if (anchor.origin !== window.location.origin || anchor.getAttribute("href")?.startsWith("#")) return;
    event.preventDefault();
    navigate(anchor.pathname + anchor.search);
  });
}
