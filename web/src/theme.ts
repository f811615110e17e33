import { cell } from "./cell";

export type Theme = "system" | "light" | "dark";
const KEY = "leasehold.theme";

export const theme = cell<Theme>(stored());
/** Counts changes of the colours, whoever made them; charts draw themselves again. */
export const palette = cell(0);

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "system";
}

export function setTheme(next: Theme): void {
  localStorage.setItem(KEY, next);
  theme.set(next);
  apply();
}

export function apply(): void {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
  palette.set(palette.value + 1);
}

/** What a colour of the style sheet is at the moment, for canvases. */
export function colour(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const computed = getComputedStyle(probe).color;
  probe.remove();
  return computed;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => palette.set(palette.value + 1));
