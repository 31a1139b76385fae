"""arq: job queues for asyncio on Redis.

A job stays in the queue until its handler has ended, and a key that expires marks it as in progress; a job
whose worker is killed runs again when that key is gone, ten seconds after the job's timeout. The worker polls.
Settings by its documentation, https://arq-docs.helpmanual.io/#arq.worker.Worker.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker, func

from measures import Job, Payload, main, now_ms

NAME = "bench"
POLL_S = 0.02
TIMEOUT_S = 20
# It handles some 3,000 a second, and is offered no more.
AT_MOST = 5_000

DESCRIPTION = {
    "name": "arq",
    "version": "0.28.0",
    "language": "Python",
    "settings": "redis-py 5.3.1 with hiredis 3.5.0; max_jobs as asked for; poll_delay 20 ms (default 500 ms); keep_result "
    "0, so that jobs leave Redis; job_timeout 20 s (default 300 s), so that a killed worker's jobs run again after 30 s; "
    "throughput with 5,000 jobs",
    "survives_a_crash": True,
    "leaves_out": "a bulk call",
}


class Arq:
    def __init__(self, pool: ArqRedis) -> None:
        self.pool = pool

    async def offer(self, job: Job) -> None:
        later = job.due > now_ms()
        defer_until = datetime.fromtimestamp(job.due / 1_000, UTC) if later else None
        await self.pool.enqueue_job(NAME, job.payload, _defer_until=defer_until)

    async def start_worker(self, concurrency: int, handle: Callable[[Payload], Awaitable[None]]) -> None:
        async def handler(_context: dict[str, Any], payload: Payload) -> None:
            await handle(payload)

        worker = Worker(
            functions=[func(handler, name=NAME)],
            redis_pool=self.pool,
            max_jobs=concurrency,
            queue_read_limit=5 * concurrency,
            poll_delay=POLL_S,
            job_timeout=TIMEOUT_S,
            keep_result=0,
            handle_signals=False,
        )
        self.worker = asyncio.create_task(worker.async_run())


async def connect(url: str) -> Arq:
    return Arq(await create_pool(RedisSettings.from_dsn(url)))


main(DESCRIPTION, connect, AT_MOST)
