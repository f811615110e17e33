"""Runs the lock of Python's `redis` package: one command per line, one answer per line.

take KEY TTL           ask once; a TTL of 0 never expires
wait KEY TTL PATIENCE  ask again until it is ours or patience is over
release KEY            give back what was taken last
"""

import sys

import redis
from redis.exceptions import LockError
from redis.lock import Lock

client = redis.Redis(port=int(sys.argv[1]), client_name="python")
locks = {}


def run(command, key, *numbers):
    numbers = [float(number) for number in numbers]
    if command == "release":
        locks[key].release()
        return True
    lock = locks[key] = Lock(client, key, timeout=numbers[0] or None, sleep=0.02)
    if command == "take":
        return lock.acquire(blocking=False)
    return lock.acquire(blocking=True, blocking_timeout=numbers[1])


for line in sys.stdin:
    try:
        answer = run(*line.split())
    except LockError as error:
        answer = type(error).__name__
    print(answer, flush=True)
