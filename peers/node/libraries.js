// The two libraries behind one shape: `take(name)` resolves to a function that releases the lock again.
//
// Both share one connection per server among all tasks; ioredis sends what is asked in one turn of the event loop together.

import { Redis } from "ioredis";
import { Mutex, RedlockMutex } from "redis-semaphore";
import Redlock from "redlock";

export const libraries = { redlock: openRedlock, "redis-semaphore": openSemaphore };

export async function connect(urls) {
  const clients = urls.map((url) => new Redis(url, { lazyConnect: true }));
  await Promise.all(clients.map((client) => client.connect()));
  // Only the benchmark stops servers; without a listener ioredis prints a stack for each attempt to reconnect.
  clients.forEach((client) => client.on("error", () => {}));
  return clients;
}

// Waits as by default: asks again after 200 ms ± 100 ms. Only the limit of 10 retries is lifted for `contend`.
function openRedlock(clients, { workload, ttl }) {
  const redlock = new Redlock(clients, workload === "contend" ? { retryCount: -1 } : {});
  if (workload !== "keep") {
    return async (name) => {
      const lock = await redlock.acquire([name], ttl);
      return () => lock.release();
    };
  }
  // Its watchdog is `using`: the lock is extended 500 ms before it would expire, for as long as the routine runs.
  return (name) =>
    new Promise((granted, failed) => {
      const done = redlock.using([name], ttl, (lost) => {
        lost.addEventListener("abort", () => console.error(`lost ${name}: ${lost.error}`));
        return new Promise((finish) => granted(() => (finish(), done)));
      });
      done.catch(failed);
    });
}

// Waits as by default: asks again every 10 ms. Only the limit of 10 s is lifted for `contend`. Renews by default, after
// 80 % of the ttl, with a timer of its own for each lock.
function openSemaphore(clients, { workload, ttl }) {
  const options = {
    lockTimeout: ttl,
    onLockLost: (error) => console.error(error.message),
    ...(workload === "contend" && { acquireTimeout: Infinity }),
  };
  return async (name) => {
    const mutex = clients.length > 1 ? new RedlockMutex(clients, name, options) : new Mutex(clients[0], name, options);
    await mutex.acquire();
    return () => mutex.release();
  };
}
