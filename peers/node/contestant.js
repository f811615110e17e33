// The Node libraries redlock and redis-semaphore as contestants of the benchmark. For locks that are shared with others see
// interop.js.

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { serve as interop } from "./interop.js";
import { connect, libraries } from "./libraries.js";
import { orders } from "./orders.js";

const WARM_UP_CYCLES = 200;

const say = (result) => process.stdout.write(`${typeof result === "string" ? result : JSON.stringify(result)}\n`);

function parse([workload, ...pairs]) {
  const values = Object.fromEntries(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
  const { lib = "redlock", prefix = "", name = "", url = "", urls = url } = values;
  const number = (key, otherwise) => Number(values[key] ?? otherwise);
  const ttl = number("ttl_ms", 30_000);
  if (!libraries[lib]) throw new Error(`unknown library "${lib}"`);
  return {
    workload, lib, prefix, name,
    keyPrefix: values.key_prefix ?? "",
    urls: urls.split(","),
    ttl: workload === "hold" ? Math.max(ttl, 600_000) : ttl,
    tasks: number("tasks", 64),
    ms: number("ms", 1000),
    grants: number("grants", 100),
    holdMs: number("hold_us", 1000) / 1000,
    locks: number("locks", 1),
  };
}

function version(lib) {
  const about = readFileSync(new URL(`node_modules/${lib}/package.json`, import.meta.url));
  return { library: lib, version: JSON.parse(about).version.replace(/^v/, ""), language: `node ${process.versions.node}` };
}

// What the tasks of one round have seen. The first error is shown, all are counted.
class Tally {
  us = [];
  errors = 0;

  fail(error) {
    if (this.errors++ === 0) console.error(error.message);
  }

  percentile(p) {
    return this.us[Math.floor(p * (this.us.length - 1))] ?? 0;
  }

  // Runs `task` that often at the same time; resolves to how many seconds all of them took.
  async concurrently(tasks, task) {
    const begin = performance.now();
    await Promise.all(Array.from({ length: tasks }, (_, number) => task(number)));
    const took = performance.now() - begin;
    this.us.sort((a, b) => a - b);
    return took / 1000;
  }
}

// Each task locks and releases a name of its own for as long as `more` says.
async function cycles(take, { prefix, tasks }, more) {
  const seen = new Tally();
  const seconds = await seen.concurrently(tasks, async (number) => {
    for (let done = 0; more(done); done++) {
      const begin = performance.now();
      try {
        const release = await take(prefix + number);
        await release();
        seen.us.push((performance.now() - begin) * 1000);
      } catch (error) {
        seen.fail(error);
      }
    }
  });
  return { seen, seconds };
}

async function warmUp(take, options) {
  const { seen } = await cycles(take, options, (done) => done < WARM_UP_CYCLES / options.tasks);
  if (seen.errors > 0) throw new Error(`${seen.errors} cycles failed while warming up`);
}

async function cycle(take, options) {
  const end = performance.now() + options.ms;
  const { seen, seconds } = await cycles(take, options, () => performance.now() < end);
  const [p50_us, p99_us] = [0.5, 0.99].map((p) => seen.percentile(p));
  return { cycles: seen.us.length, seconds, p50_us, p99_us, errors: seen.errors };
}

// All tasks want the same name, until the process has had its share of grants.
async function contend(take, { prefix, name, tasks, grants, holdMs }) {
  const seen = new Tally();
  const granted = [];
  let begun = 0;
  let held = 0;
  const seconds = await seen.concurrently(tasks, async () => {
    while (begun++ < grants) {
      const begin = performance.now();
      try {
        const release = await take(prefix + name);
        const at = performance.now();
        seen.us.push((at - begin) * 1000);
        granted.push((performance.timeOrigin + at) / 1000);
        await sleep(holdMs);
        held += performance.now() - at;
        await release();
      } catch (error) {
        seen.fail(error);
      }
    }
  });
  return {
    grants: granted.length, seconds, hold_seconds: held / 1000,
    waits_us: [0.5, 0.99, 1].map((p) => seen.percentile(p)),
    first_s: granted.at(0), last_s: granted.at(-1), errors: seen.errors,
  };
}

// A few dozen at a time.
async function forEachLimited(items, tasks, act) {
  const rest = items.entries();
  await Promise.all(Array.from({ length: tasks }, async () => {
    for (const [number, item] of rest) await act(item, number);
  }));
}

async function main() {
  const options = parse(process.argv.slice(2));
  if (options.workload === "version") return say(version(options.lib));
  if (options.workload === "interop") return interop(options, say);
  const lines = orders();
  const take = libraries[options.lib](await connect(options.urls), options);
  let held = [];
  const release = async () => {
    const releases = held;
    held = [];
    await forEachLimited(releases, options.tasks, (one) => one());
    return { released: releases.length };
  };
  const takeAll = () => {
    held = Array.from({ length: options.locks });
    return forEachLimited(held, options.tasks, async (_, number) => (held[number] = await take(options.prefix + number)));
  };
  const hold = { prepare: takeAll, round: () => ({ held: held.length }) };
  const workloads = {
    cycle: { prepare: () => warmUp(take, options), round: () => cycle(take, options) },
    contend: { prepare: () => {}, round: () => contend(take, options) },
    hold,
    keep: { ...hold, round: async () => (await sleep(options.ms), hold.round()) },
  };
  const workload = workloads[options.workload];
  if (!workload) throw new Error(`unknown workload "${options.workload}"`);
  await workload.prepare();
  say("ready");
  for await (const line of lines) {
    if (line === "round") say(await workload.round());
    if (line === "release") say(await release());
  }
  await release();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error.message);
    process.exit(1);
  },
);
