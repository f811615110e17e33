"""The lock of Python's package redis as a contestant of the benchmark. A task is a thread. For locks that are shared with
others see interop.py.
"""

import importlib.metadata
import json
import math
import platform
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count
from types import SimpleNamespace

import redis

import interop
from orders import orders

WARM_UP_CYCLES = 200


def say(result):
    print(result if isinstance(result, str) else json.dumps(result), flush=True)


def parse(workload, *pairs):
    given = dict(pair.split("=", 1) for pair in pairs)

    def number(key, otherwise):
        return int(given.get(key, otherwise))

    ttl, tasks = number("ttl_ms", 30_000) / 1000, number("tasks", 16)
    return SimpleNamespace(
        workload=workload,
        lib=given.get("lib", "redis-py"),
        prefix=given.get("prefix", ""),
        name=given.get("name", ""),
        urls=given.get("urls", given.get("url", "")).split(","),
        ttl=max(ttl, 600) if workload == "hold" else ttl,
        tasks=tasks,
        # They stay for the next round, and with them what is known about their processor time.
        threads=ThreadPoolExecutor(tasks),
        seconds=number("ms", 1000) / 1000,
        grants=number("grants", 100),
        hold=number("hold_us", 1000) / 1_000_000,
        locks=number("locks", 1),
    )


def unsupported(options):
    """Why the library cannot take part, if it cannot."""
    if options.workload == "keep":
        return "redis-py has no watchdog: extending is left to the caller"
    if len(options.urls) > 1:
        return "redis-py locks on one server only"
    return None


def opened(options):
    """Takes a lock of that name; returns what releases it.

    A connection blocks while it waits for its reply, so each thread needs its own; the default is at most 100. With hiredis
    installed replies are parsed in C, as the README advises. Waits as by default: asks again every 100 ms, without limit.
    """
    client = redis.Redis.from_url(options.urls[0], max_connections=max(options.tasks, 100))

    def take(name):
        # Another thread may release it.
        lock = client.lock(name, timeout=options.ttl, thread_local=False)
        if not lock.acquire(blocking=options.workload == "contend"):
            raise RuntimeError(f"{name} is taken")
        return lock.release

    return take


class Tally:
    """What the threads of one round have seen. The first error is shown, all are counted."""

    def __init__(self, options):
        self.options = options
        self.us, self.granted, self.held, self.errors = [], [], 0.0, 0
        self.turn = threading.Lock()

    def fail(self, error):
        with self.turn:
            self.errors += 1
            if self.errors == 1:
                print(error, file=sys.stderr, flush=True)

    def percentile(self, p):
        return self.us[math.floor(p * (len(self.us) - 1))] if self.us else 0

    def concurrently(self, task):
        """Runs `task` on all threads at the same time; returns how many seconds that took."""
        begin = time.perf_counter()
        wait([self.options.threads.submit(task, number) for number in range(self.options.tasks)])
        took = time.perf_counter() - begin
        self.us.sort()
        return took


def cycles(take, options, more):
    """Each thread locks and releases a name of its own for as long as `more` says."""
    seen = Tally(options)

    def task(number):
        name = f"{options.prefix}{number}"
        us, done = [], 0
        while more(done):
            done += 1
            begin = time.perf_counter()
            try:
                take(name)()
                us.append((time.perf_counter() - begin) * 1e6)
            except Exception as error:
                seen.fail(error)
        with seen.turn:
            seen.us += us

    return seen, seen.concurrently(task)


def warm_up(take, options):
    seen, _ = cycles(take, options, lambda done: done < WARM_UP_CYCLES / options.tasks)
    if seen.errors:
        raise RuntimeError(f"{seen.errors} cycles failed while warming up")


def cycle(take, options):
    end = time.perf_counter() + options.seconds
    seen, seconds = cycles(take, options, lambda _: time.perf_counter() < end)
    p50, p99 = (seen.percentile(p) for p in (0.5, 0.99))
    return {"cycles": len(seen.us), "seconds": seconds, "p50_us": p50, "p99_us": p99, "errors": seen.errors}


def contend(take, options):
    """All threads want the same name, until the process has had its share of grants."""
    seen, begun = Tally(options), count(1)

    def task(_):
        while next(begun) <= options.grants:
            begin = time.perf_counter()
            try:
                release = take(options.prefix + options.name)
                at, granted = time.time(), time.perf_counter()
                time.sleep(options.hold)
                held = time.perf_counter() - granted
                release()
            except Exception as error:
                seen.fail(error)
                continue
            with seen.turn:
                seen.us.append((granted - begin) * 1e6)
                seen.granted.append(at)
                seen.held += held

    seconds = seen.concurrently(task)
    return {
        "grants": len(seen.us),
        "seconds": seconds,
        "hold_seconds": seen.held,
        "waits_us": [seen.percentile(p) for p in (0.5, 0.99, 1)],
        "first_s": min(seen.granted, default=0),
        "last_s": max(seen.granted, default=0),
        "errors": seen.errors,
    }


def for_each(options, items, act):
    """A few at a time."""
    seen, rest = Tally(options), iter(list(items))

    def task(_):
        for item in rest:
            try:
                act(item)
            except Exception as error:
                seen.fail(error)

    seen.concurrently(task)
    if seen.errors:
        raise RuntimeError(f"{seen.errors} locks failed")


def serve(take, options):
    held, lines = [], orders()

    def release():
        releases = held[:]
        held.clear()
        for_each(options, releases, lambda one: one())
        return {"released": len(releases)}

    if options.workload == "cycle":
        warm_up(take, options)
    if options.workload == "hold":
        for_each(options, range(options.locks), lambda number: held.append(take(f"{options.prefix}{number}")))
    rounds = {
        "cycle": lambda: cycle(take, options),
        "contend": lambda: contend(take, options),
        "hold": lambda: {"held": len(held)},
    }
    run = rounds[options.workload]
    say("ready")
    for line in lines:
        if line == "round":
            say(run())
        if line == "release":
            say(release())
    release()


def main():
    options = parse(*sys.argv[1:])
    if options.workload == "version":
        package = "redis" if options.lib == "redis-py" else options.lib
        version = importlib.metadata.version(package)
        say({"library": options.lib, "version": version, "language": f"python {platform.python_version()}"})
    elif options.workload == "interop":
        interop.serve(options.lib, options.urls[0])
    elif why := unsupported(options):
        say({"unsupported": why})
    else:
        serve(opened(options), options)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
