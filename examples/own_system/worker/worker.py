"""Confirms the orders that come over the queue."""

import asyncio
import json
import logging
import os

import asyncpg
import nats
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("worker")
tracer = trace.get_tracer("worker")


async def main():
    database = await asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=4, command_timeout=2)
    queue = await nats.connect(os.environ["QUEUE_URL"], max_reconnect_attempts=-1)

    async def confirm(message):
        context = propagate.extract(dict(message.headers or {}))
        with tracer.start_as_current_span("process orders.placed", context=context, kind=SpanKind.CONSUMER):
            order = json.loads(message.data)["order"]
            try:
                await database.execute("UPDATE orders SET confirmed = now() WHERE id = $1", order)
            except (OSError, asyncpg.PostgresError, TimeoutError) as error:
                log.error("order %s is not confirmed: %r", order, error)
                raise

    await queue.subscribe("orders.placed", queue="workers", cb=confirm)
    log.info("waiting for orders")
    await asyncio.Event().wait()


asyncio.run(main())
