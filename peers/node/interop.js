// The locks of the Node libraries redlock and redis-semaphore, one command per line; see the README for all of them.

import { readFile, writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { Mutex } from "redis-semaphore";
import Redlock, { ExecutionError, ResourceLockedError } from "redlock";
import { orders } from "./orders.js";

const RETRY_MS = 200;

// A lock that was taken is an object with `extend(ttl)` and `release()`, which resolve to "done" or to why it was refused.
const libraries = {
  redlock(client) {
    const redlock = new Redlock([client], { retryDelay: RETRY_MS });
    const refused = async (act) => {
      try {
        await act();
        return "done";
      } catch (error) {
        if (!(error instanceof ExecutionError)) throw error;
        return `refused ${error.name}`;
      }
    };
    const acquire = async (key, ttl, retryCount) => {
      try {
        let lock = await redlock.acquire([key], ttl, { retryCount });
        return {
          extend: (ttl) => refused(async () => (lock = await lock.extend(ttl))),
          release: () => refused(() => lock.release()),
        };
      } catch (error) {
        if (!(await isBusy(error))) throw error;
        return undefined;
      }
    };
    return {
      take: (key, ttl) => acquire(key, ttl, 0),
      wait: (key, ttl, patience) => acquire(key, ttl, Math.ceil(patience / RETRY_MS)),
    };
  },

  // It prefixes `mutex:`. A release does not report whether it found its lock.
  "redis-semaphore"(client) {
    const acquire = async (key, options) => {
      // Renewals are for the command `extend`.
      const mutex = new Mutex(client, key, { ...options, refreshInterval: 0 });
      if (!(await mutex.tryAcquire())) return undefined;
      return {
        extend: async (lockTimeout) => {
          const again = { identifier: mutex.identifier, acquiredExternally: true, lockTimeout, refreshInterval: 0 };
          return (await new Mutex(client, key, again).tryAcquire()) ? "done" : "refused LostLock";
        },
        release: async () => (await mutex.release(), "done"),
      };
    };
    return {
      take: (key, lockTimeout) => acquire(key, { lockTimeout, acquireAttemptsLimit: 1 }),
      wait: (key, lockTimeout, acquireTimeout) => acquire(key, { lockTimeout, acquireTimeout }),
    };
  },
};

// Whether redlock gave up only because somebody else holds the lock.
async function isBusy(error) {
  if (!(error instanceof ExecutionError)) return false;
  const attempts = await Promise.all(error.attempts);
  return attempts.every(({ votesAgainst }) => [...votesAgainst.values()].every((why) => why instanceof ResourceLockedError));
}

const between = (least, most) => least + Math.random() * (most - least);

export async function serve({ lib, urls, keyPrefix }, say) {
  const client = new Redis(urls[0], { keyPrefix, lazyConnect: true });
  await client.connect();
  const library = libraries[lib](client);
  const locks = new Map();
  const granted = (key, lock) => {
    if (lock) locks.set(key, lock);
    return lock ? "granted" : "busy";
  };

  // Adds one to the number in a file, so many times, each time under the lock.
  const count = async (key, ttl, times, file) => {
    let [changes, longest] = [0, 0];
    for (let done = 0; done < times; done++) {
      const begin = performance.now();
      let asked = begin;
      let lock;
      while (!(lock = await library.take(key, ttl))) {
        await sleep(between(2, 12));
        asked = performance.now();
      }
      longest = Math.max(longest, performance.now() - begin);
      const [number, last] = (await readFile(file, "utf8")).split(" ");
      await sleep(1);
      if (performance.now() - asked > ttl * 0.8) return `stopped ${done} its lease had nearly run out before it wrote`;
      await writeFile(file, `${Number(number) + 1} ${lib}`);
      changes += last !== lib;
      const released = await lock.release();
      if (released !== "done") return `stopped ${done + 1} its release was refused: ${released}`;
      await sleep(between(0, 4));
    }
    return `counted ${times} changes=${changes} longest_ms=${Math.floor(longest)}`;
  };

  const commands = {
    take: async (key, ttl) => granted(key, await library.take(key, Number(ttl))),
    wait: async (key, ttl, patience) => granted(key, await library.wait(key, Number(ttl), Number(patience))),
    extend: (key, ttl) => locks.get(key).extend(Number(ttl)),
    release: (key) => locks.get(key).release(),
    count: (key, ttl, times, file) => count(key, Number(ttl), Number(times), file),
  };
  say("ready");
  for await (const line of orders()) {
    const [command, ...words] = line.split(" ");
    try {
      say(await commands[command](...words));
    } catch (error) {
      say(`error ${error.name}: ${error.message}`);
    }
  }
}
