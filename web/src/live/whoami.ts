import { call, tokenWanted } from "../api/client";
import type { Right, WhoAmI } from "../api/types";
import { cell } from "../cell";
import { on } from "./connection";

export const whoami = cell<WhoAmI | null>(null);

export function loadWhoAmI(): void {
  call<WhoAmI>("/v1/whoami").then(whoami.set, () => undefined);
}

/** Whether this page may offer an action on a name; the service decides again. */
export function allows(right: Right, name: string): boolean {
  const me = whoami.value;
  if (!me || (me.read_only && right !== "read")) return false;
  return me.rights.some(({ prefix, allow }) => name.startsWith(prefix) && allow.includes(right));
}

on("snapshot", loadWhoAmI);
tokenWanted.subscribe(() => tokenWanted.value || loadWhoAmI());
