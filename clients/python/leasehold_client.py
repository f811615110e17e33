"""Locks of a `leasehold serve`, with the standard library only.

    with Leasehold("http://127.0.0.1:7420") as leases:
        with leases.lock("deal:42", ttl=30, wait=5) as lock:
            write(fence=lock.fence)          # the resource refuses a lower fence than it has seen
            if lock.lost.is_set(): stop()    # set before anybody else can have the lock

A validity counts from when *this* process sent its request, on a clock that counts suspend: never from the answer.
"""

import http.client
import json
import threading
import time
import urllib.parse
import uuid
from typing import Any, Optional


def _now() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Refused(Exception):
    """The service refused; `kind` is its word for it: busy, lost, taken, forbidden, store_unreachable, ..."""

    def __init__(self, problem: dict):
        super().__init__(problem.get("detail", "no detail"))
        self.kind: str = problem.get("kind", "unknown")
        self.status: int = problem.get("status", 0)
        self.problem = problem


class Lock:
    """A lock that is held; `fence` goes with every write."""

    def __init__(self, leases: "Leasehold", answer: dict, sent_at: float):
        self.name: str = answer["name"]
        self.fence: int = answer["fence"]
        self.sequencer: str = answer["sequencer"]
        self.lost = threading.Event()
        self._leases, self._token = leases, answer["token"]
        self._valid_until = sent_at + answer["valid_for_ms"] / 1000
        self._margin = answer["ttl_ms"] / 20_000
        leases._watch(self)

    def remaining(self) -> float:
        """Seconds for which the lock can be trusted; 0 once it is lost."""
        return 0.0 if self.lost.is_set() else max(0.0, self._valid_until - _now())

    def release(self) -> None:
        """Gives the lock back; `Refused` of the kind lost or taken if it was not ours any more."""
        self._leases._forget(self)
        self._leases.request("POST", f"/v1/locks/{_quoted(self.name)}/release", {"token": self._token})

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            self.release()
        except Refused as refused:
            if refused.kind not in ("lost", "taken"):
                raise
            self.lost.set()


class Leasehold:
    """A session: one heartbeat keeps all locks of this process alive."""

    def __init__(self, url: str, token: Optional[str] = None, ttl: float = 30, label: str = ""):
        self._url, self._token, self._ttl = urllib.parse.urlsplit(url), token, ttl
        self._held: dict = {}
        self._guard, self._closed = threading.Lock(), threading.Event()
        opened = self.request("POST", "/v1/sessions", {"ttl": _span(ttl), "label": label})
        self._path, self._secret = f"/v1/sessions/{opened['id']}", {"Leasehold-Secret": opened["secret"]}
        self._session = opened["id"]
        threading.Thread(target=self._keep_alive, daemon=True).start()

    def lock(self, name: str, wait: float = 0, **wish: Any) -> Lock:
        """Acquires a lock: `mode` is exclusive, shared or permits (with `of` and `permits`), `ttl` is in seconds."""
        if "ttl" in wish:
            wish["ttl"] = _span(wish["ttl"])
        headers = {**self._secret, "Idempotency-Key": str(uuid.uuid4()), "Prefer": f"wait={wait}"}
        path, sent_at = f"/v1/locks/{_quoted(name)}/acquire", _now()
        answer = self.request("POST", path, {**wish, "session": self._session}, headers, wait + 10)
        return Lock(self, answer, sent_at)

    def request(self, method: str, path: str, body: Any = None, headers: Optional[dict] = None, timeout: float = 10) -> Any:
        """Sends one request; repeats it once where the connection broke and a repeat is harmless."""
        headers = {"Content-Type": "application/json", **(headers or {})}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        for is_last in (method == "POST" and "Idempotency-Key" not in headers, True):
            connection = kind(self._url.hostname or "", self._url.port, timeout=timeout)
            try:
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException):
                if is_last:
                    raise
                continue
            finally:
                connection.close()
            value = json.loads(text) if text else {}
            if answer.status >= 400:
                raise Refused(value)
            return value

    def close(self) -> None:
        """Gives all locks back and ends the session."""
        self._closed.set()
        self.request("DELETE", self._path, headers=self._secret)

    def __enter__(self) -> "Leasehold":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _watch(self, lock: Lock) -> None:
        with self._guard:
            self._held[lock.name, lock.fence] = lock

    def _forget(self, lock: Lock) -> None:
        with self._guard:
            self._held.pop((lock.name, lock.fence), None)

    def _keep_alive(self) -> None:
        renew_at = _now() + self._ttl / 3
        while not self._closed.wait(min(0.05, self._ttl / 20)):
            if _now() >= renew_at:
                renew_at = _now() + self._ttl / 3
                threading.Thread(target=self._renew, daemon=True).start()
            with self._guard:
                held = list(self._held.values())
            for lock in held:
                if lock._valid_until - lock._margin <= _now():
                    lock.lost.set()
                    self._forget(lock)

    def _renew(self) -> None:
        sent_at = _now()
        try:
            renewed = self.request("PUT", self._path, headers=self._secret, timeout=max(1, self._ttl / 3))
        except (OSError, http.client.HTTPException, Refused):
            return  # what is not renewed runs out by our own clock
        with self._guard:
            for held in renewed["held"]:
                lock = self._held.get((held["name"], held["fence"]))
                if lock:
                    lock._valid_until = max(lock._valid_until, sent_at + held["valid_for_ms"] / 1000)
            for gone in renewed["lost"]:
                lock = self._held.pop((gone["name"], gone["fence"]), None)
                if lock:
                    lock.lost.set()


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _span(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
