"""Reads the events of `team-a` by a durable consumer, which goes on where the program was."""

import asyncio
import os

import nats


async def main():
    user, password = os.environ["NATS_USER"], os.environ["NATS_PASSWORD"]
    client = await nats.connect(os.environ["NATS_URL"], user=user, password=password)
    events = await client.jetstream().pull_subscribe("jobs.team-a.>", durable="reports-team-a")
    while True:
        try:
            batch = await events.fetch(100, timeout=5)
        except TimeoutError:
            continue
        for event in batch:
            print(event.metadata.sequence.stream, event.subject, event.data.decode(), flush=True)
            await event.ack()


asyncio.run(main())
