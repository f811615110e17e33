"""The locks of Python's packages redis and python-redis-lock, one command per line; see the README for all of them."""

import logging
import random
import time

import redis
import redis_lock
from redis.exceptions import LockError
from redis.lock import Lock

from orders import orders


class RedisPy:
    refusals = (LockError,)

    def __init__(self, url):
        self.client = redis.Redis.from_url(url)

    def lock(self, key, ttl_ms):
        return Lock(self.client, key, timeout=ttl_ms / 1000)

    def take(self, lock):
        return lock.acquire(blocking=False)

    def wait(self, lock, patience_ms):
        return lock.acquire(blocking_timeout=patience_ms / 1000)

    def extend(self, lock, ttl_ms):
        lock.extend(ttl_ms / 1000, replace_ttl=True)

    def release(self, lock):
        lock.release()


class PythonRedisLock:
    """Knows whole seconds only. It waits for a message that is sent by a release of its own kind."""

    refusals = (redis_lock.NotAcquired,)

    def __init__(self, url):
        # It blocks on the socket for as long as it waits, and the client would give up after five seconds by default.
        self.client = redis.Redis.from_url(url, socket_timeout=None)
        # It warns of every lock that is busy.
        logging.getLogger("redis_lock").setLevel(logging.ERROR)

    def lock(self, key, ttl_ms):
        return redis_lock.Lock(self.client, key, expire=seconds(ttl_ms))

    def take(self, lock):
        return lock.acquire(blocking=False)

    def wait(self, lock, patience_ms):
        return lock.acquire(timeout=seconds(patience_ms))

    def extend(self, lock, ttl_ms):
        lock.extend(seconds(ttl_ms))

    def release(self, lock):
        lock.release()

    def reset(self, lock):
        """Deletes the key, whoever holds it."""
        lock.reset()

    def reset_all(self, _):
        """Deletes all keys that begin with `lock:`."""
        redis_lock.reset_all(self.client)


def seconds(ms):
    if ms % 1000:
        raise ValueError(f"python-redis-lock knows whole seconds only, not {ms} ms")
    return ms // 1000


LIBRARIES = {"redis-py": RedisPy, "python-redis-lock": PythonRedisLock}


class Commands:
    def __init__(self, name, url):
        self.name, self.library, self.locks = name, LIBRARIES[name](url), {}

    def granted(self, key, lock, is_granted):
        if is_granted:
            self.locks[key] = lock
        return "granted" if is_granted else "busy"

    def take(self, key, ttl_ms):
        lock = self.library.lock(key, int(ttl_ms))
        return self.granted(key, lock, self.library.take(lock))

    def wait(self, key, ttl_ms, patience_ms):
        lock = self.library.lock(key, int(ttl_ms))
        return self.granted(key, lock, self.library.wait(lock, int(patience_ms)))

    def extend(self, key, ttl_ms):
        return self.unless_refused(lambda: self.library.extend(self.locks[key], int(ttl_ms)))

    def release(self, key):
        return self.unless_refused(lambda: self.library.release(self.locks[key]))

    def reset(self, key):
        self.library.reset(self.library.lock(key, 1000))
        return "done"

    def reset_all(self, key):
        self.library.reset_all(key)
        return "done"

    def unless_refused(self, act):
        try:
            act()
            return "done"
        except self.library.refusals as error:
            return f"refused {type(error).__name__}"

    def count(self, key, ttl_ms, times, file):
        """Adds one to the number in a file, so many times, each time under the lock."""
        ttl_ms, times = int(ttl_ms), int(times)
        changes = longest = 0
        for done in range(times):
            begin = time.monotonic()
            lock = self.library.lock(key, ttl_ms)
            asked = begin
            while not self.library.take(lock):
                time.sleep(random.uniform(0.002, 0.012))
                asked = time.monotonic()
            longest = max(longest, time.monotonic() - begin)
            with open(file) as counter:
                number, last = counter.read().split()
            time.sleep(0.001)
            if time.monotonic() - asked > ttl_ms / 1000 * 0.8:
                return f"stopped {done} its lease had nearly run out before it wrote"
            with open(file, "w") as counter:
                counter.write(f"{int(number) + 1} {self.name}")
            changes += last != self.name
            try:
                self.library.release(lock)
            except self.library.refusals as error:
                return f"stopped {done + 1} its release was refused: {type(error).__name__}"
            time.sleep(random.uniform(0, 0.004))
        return f"counted {times} changes={changes} longest_ms={int(longest * 1000)}"


def serve(name, url):
    commands = Commands(name, url)
    print("ready", flush=True)
    for line in orders():
        command, *words = line.split()
        try:
            answer = getattr(commands, command)(*words)
        except Exception as error:
            answer = f"error {type(error).__name__}: {error}"
        print(answer, flush=True)
