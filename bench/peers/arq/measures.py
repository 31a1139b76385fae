"""The protocol of bench/README.md, without the system.

A peer has `describe`, `connect`, `offer` and `start_worker`.
"""

import asyncio
import json
import math
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

TASKS = 32
KILLED = 10
MAX_QUIET_S = 15
KILL_MAX_WAIT_S = 150
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

Payload = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One job to offer; `due` is in milliseconds since 1970."""

    due: int
    payload: Payload


@dataclass(frozen=True)
class Settings:
    url: str
    count: int
    concurrency: int
    rate: int
    shuffled: bool
    payload: Payload

    @classmethod
    def from_env(cls) -> "Settings":
        env = os.environ
        return cls(
            url=env.get("BENCH_URL", "redis://127.0.0.1:6379"),
            count=int(env.get("BENCH_COUNT", "1000")),
            concurrency=int(env.get("BENCH_CONCURRENCY", "100")),
            rate=int(env.get("BENCH_RATE", "1000")),
            shuffled=env.get("BENCH_ORDER") == "shuffled",
            payload=json.loads(env.get("BENCH_PAYLOAD", '{"merchant":"m-1","order":"o-1","amount":1}')),
        )


@dataclass
class Record:
    """A record that a peer's handler calls with the job's payload: it counts starts, and notes their times."""

    wanted: int
    ends: bool = True
    starts: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    all: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, payload: Payload) -> None:
        self.starts.append(time.perf_counter())
        if "due" in payload:
            self.late_ms.append(time.time() * 1_000 - payload["due"])
        if len(self.starts) == self.wanted:
            self.all.set()
        if not self.ends:
            await asyncio.Future()

    async def all_started(self, max_quiet: float) -> None:
        """Waits until as many handlers as wanted have started, or none has for `max_quiet` seconds."""
        before = -1
        while before != len(self.starts):
            before = len(self.starts)
            try:
                return await asyncio.wait_for(self.all.wait(), max_quiet)
            except TimeoutError:
                pass


class Peer(Protocol):
    async def offer(self, job: Job) -> None: ...

    async def start_worker(self, concurrency: int, handle: Callable[[Payload], Awaitable[None]]) -> None: ...


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def jobs(settings: Settings, due: Callable[[int], int], with_due: bool = False) -> list[Job]:
    """Creates the jobs of the settings. If `with_due`, payloads have the due time, so that the handler can compare."""
    dues = [due(number) for number in range(settings.count)]
    if settings.shuffled:
        random.shuffle(dues)
    return [Job(at, settings.payload | {"due": at} if with_due else settings.payload) for at in dues]


async def offer_singly(peer: Peer, offered: list[Job]) -> None:
    for job in offered:
        await peer.offer(job)


async def offer_from_tasks(peer: Peer, offered: list[Job]) -> None:
    left = iter(offered)

    async def task() -> None:
        for job in left:
            await peer.offer(job)

    await asyncio.gather(*(task() for _ in range(TASKS)))


async def per_second(offering: Awaitable[None], count: int) -> float:
    begun = time.perf_counter()
    await offering
    return count / (time.perf_counter() - begun)


def percentile(ordered: list[float], percent: int) -> float:
    """Returns a percentile by nearest rank."""
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


async def throughput(peer: Peer, settings: Settings) -> dict[str, Any]:
    first = now_ms() - 1_000
    await offer_from_tasks(peer, jobs(settings, lambda number: first + number * 1_000 // settings.count))
    record = Record(settings.count)
    await peer.start_worker(settings.concurrency, record.handle)
    await record.all_started(MAX_QUIET_S)
    if not record.starts:
        raise RuntimeError("nothing was handled")
    seconds = record.starts[-1] - record.starts[0]
    return {
        "handled": len(record.starts),
        "seconds": seconds,
        "per_s": (len(record.starts) - 1) / seconds,
    }


async def lateness(peer: Peer, settings: Settings) -> dict[str, Any]:
    record = Record(settings.count)
    await peer.start_worker(settings.concurrency, record.handle)
    first = now_ms() + 2_000 + settings.count
    offered = jobs(settings, lambda number: first + number * 1_000 // settings.rate, with_due=True)
    await offer_from_tasks(peer, offered)
    if now_ms() >= first:
        raise RuntimeError("offering took longer than was left until the first job was due")
    all_due = (first - now_ms()) / 1_000 + settings.count / settings.rate
    await record.all_started(all_due + MAX_QUIET_S)
    if not record.late_ms:
        raise RuntimeError("nothing was handled")
    late = sorted(record.late_ms)
    return {
        "handled": len(late),
        "early": sum(ms < 0 for ms in late),
        "p50_ms": percentile(late, 50),
        "p99_ms": percentile(late, 99),
        "max_ms": percentile(late, 100),
    }


async def arm(peer: Peer, settings: Settings) -> dict[str, Any]:
    def in_an_hour() -> list[Job]:
        return jobs(settings, lambda _: now_ms() + HOUR_MS)

    return {
        "single_per_s": await per_second(offer_singly(peer, in_an_hour()), settings.count),
        "concurrent_per_s": await per_second(offer_from_tasks(peer, in_an_hour()), settings.count),
        "bulk_per_s": None,
    }


async def lives(peer: Peer, settings: Settings) -> dict[str, Any]:
    record = Record(settings.count)
    await peer.start_worker(settings.concurrency, record.handle)
    begun = time.perf_counter()
    await offer_from_tasks(peer, jobs(settings, lambda _: now_ms()))
    await record.all_started(MAX_QUIET_S)
    if not record.starts:
        raise RuntimeError("nothing was handled")
    # A handler does nothing, so its start is its end.
    seconds = record.starts[-1] - begun
    return {"handled": len(record.starts), "lives_per_s": len(record.starts) / seconds, "seconds": seconds}


async def memory(peer: Peer, settings: Settings) -> dict[str, Any]:
    await offer_from_tasks(peer, jobs(settings, lambda _: now_ms() + DAY_MS))
    return {"armed": settings.count}


async def idle(peer: Peer, settings: Settings) -> dict[str, Any]:
    await peer.start_worker(settings.concurrency, Record(-1).handle)
    await asyncio.sleep(settings.count)
    return {"seconds": settings.count}


async def kill(peer: Peer, settings: Settings) -> dict[str, Any]:
    record = Record(KILLED, ends=False)
    await peer.start_worker(max(settings.concurrency, KILLED), record.handle)
    for _ in range(KILLED):
        await peer.offer(Job(now_ms(), settings.payload))
    await record.all_started(MAX_QUIET_S)
    if len(record.starts) < KILLED:
        raise RuntimeError(f"no more than {len(record.starts)} handlers have begun")
    print(json.dumps({"started": KILLED}), flush=True)
    return await asyncio.Future()


async def kill_again(peer: Peer, settings: Settings) -> dict[str, Any]:
    begun = time.perf_counter()
    record = Record(KILLED)
    await peer.start_worker(max(settings.concurrency, KILLED), record.handle)
    try:
        await asyncio.wait_for(record.all.wait(), KILL_MAX_WAIT_S)
    except TimeoutError:
        pass
    return {"again": len(record.starts), "seconds": [at - begun for at in record.starts]}


MEASURES = {
    "throughput": throughput,
    "lateness": lateness,
    "arm": arm,
    "lives": lives,
    "bytes": memory,
    "idle": idle,
    "kill": kill,
    "kill_again": kill_again,
}


async def measure(name: str, connect: Callable[[str], Awaitable[Peer]], at_most: int) -> None:
    settings = Settings.from_env()
    if name in ("throughput", "arm", "lives", "bytes"):
        settings = replace(settings, count=min(settings.count, at_most))
    result = await MEASURES[name](await connect(settings.url), settings)
    print(json.dumps(result), flush=True)
    # The worker continues: do not wait for it.
    os._exit(0)


def main(description: dict[str, Any], connect: Callable[[str], Awaitable[Peer]], at_most: int) -> None:
    """Runs the measure of the first argument, and prints the result as the last line.

    Measures that time all jobs have `at_most` of them at most.
    """
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name == "describe":
        print(json.dumps(description))
    elif name in MEASURES:
        asyncio.run(measure(name, connect, at_most))
    else:
        sys.exit(78)
