"""A program that is sent events by a durable consumer."""

import asyncio
import os

import nats


async def main():
    user, password = os.environ["NATS_USER"], os.environ["NATS_PASSWORD"]
    client = await nats.connect(os.environ["NATS_URL"], user=user, password=password)
    events = await client.jetstream().subscribe("jobs.team-a.>", durable="pages-team-a")
    async for event in events.messages:
        print(event.metadata.sequence.stream, event.subject, event.data.decode(), flush=True)
        await event.ack()


asyncio.run(main())
