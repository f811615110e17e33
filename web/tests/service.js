// The real service on a port of its own, and a link to it that can be cut.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

const BINARY = process.env.LEASEHOLD ?? "leasehold";
const READY_MS = 30_000;

/** Waits until `met` returns something; the last error says what was missing. */
export async function until(met, what, within_ms = READY_MS) {
  const end = Date.now() + within_ms;
  let last = "it never held";
  while (Date.now() < end) {
    try {
      const found = await met();
      if (found) return found;
    } catch (error) {
      last = error.message;
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`waited ${within_ms} ms for ${what}: ${last}`);
}

/** Starts `leasehold serve` on an embedded store in a folder of its own, or on `store`. */
export async function serve({ args = [], store } = {}) {
  const folder = await mkdtemp(path.join(tmpdir(), "leasehold-browser-"));
  const url = store ?? `sqlite:${folder}/store.db`;
  const child = spawn(BINARY, ["serve", "--listen", "127.0.0.1:0", "--store", url, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let [printed, said] = ["", ""];
  child.stdout.on("data", (data) => (printed = (printed + data).slice(0, 4000)));
  child.stderr.on("data", (data) => (said = (said + data).slice(-4000)));
  let base;
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill("SIGKILL");
      await once(child, "exit");
    }
    if (!store) await rm(folder, { recursive: true, force: true });
  };
  try {
    await until(async () => {
      if (child.exitCode !== null) throw new Error(`the service ended: ${said}`);
      // It prints its address once it listens.
      base = /^http:\S+/.exec(printed)?.[0];
      return base && (await fetch(`${base}/readyz`)).ok;
    }, "the service to be ready");
  } catch (error) {
    await stop();
    throw error;
  }
  const { port } = new URL(base);
  return { base, port: Number(port), url, child, stop, api: (...call) => api(base, ...call) };
}

/** One request; fails unless the service says that it went well. */
export async function api(base, method, target, body, headers = {}) {
  const init = { method, headers: { ...headers } };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers["Content-Type"] = "application/json";
  }
  const response = await fetch(base + target, init);
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${target}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : null;
}

/** A session with locks, kept alive until it is stopped. */
export async function holder(service, label, names, body = {}) {
  const session = await service.api("POST", "/v1/sessions", { ttl: "5m", label });
  const secret = { "Leasehold-Secret": session.secret };
  const held = [];
  for (const name of names) {
    const asked = { ttl: "5m", label, session: session.id, ...body };
    held.push(await service.api("POST", `/v1/locks/${encodeURIComponent(name)}/acquire`, asked, secret));
  }
  return { session, held, renew: () => service.api("PUT", `/v1/sessions/${session.id}`, undefined, secret), release: () => service.api("DELETE", `/v1/sessions/${session.id}`, undefined, secret) };
}

/** Waits in the queue of a lock until `leave` is called, or the lock is granted. */
export function waiter(service, name, label) {
  const abort = new AbortController();
  const asked = fetch(`${service.base}/v1/locks/${encodeURIComponent(name)}/acquire`, {
    method: "POST",
    body: JSON.stringify({ ttl: "60s", label, wait: "60s" }),
    headers: { "Content-Type": "application/json", Prefer: "wait=60" },
    signal: abort.signal,
  }).then(
    (response) => response.json(),
    () => null,
  );
  return { granted: asked, leave: () => abort.abort() };
}

/** Passes bytes on to a service, until it is cut. */
export async function proxy(port) {
  const open = new Set();
  let isCut = false;
  const server = net.createServer((near) => {
    if (isCut) return near.destroy();
    const far = net.connect(port, "127.0.0.1");
    for (const socket of [near, far]) {
      open.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        open.delete(socket);
        near.destroy();
        far.destroy();
      });
    }
    near.pipe(far);
    far.pipe(near);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    base: `http://127.0.0.1:${server.address().port}`,
    cut: () => {
      isCut = true;
      for (const socket of open) socket.destroy();
    },
    mend: () => {
      isCut = false;
    },
    stop: () => {
      for (const socket of open) socket.destroy();
      server.close();
    },
  };
}
