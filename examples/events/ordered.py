"""Prints the events of the namespace `team-a` in order, from behind POSITION."""

import asyncio
import os

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy


async def main():
    user, password = os.environ["NATS_USER"], os.environ["NATS_PASSWORD"]
    client = await nats.connect(os.environ["NATS_URL"], user=user, password=password)
    position = int(os.environ.get("POSITION", "0"))
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=position + 1, inactive_threshold=300
    )
    events = await client.jetstream().subscribe("jobs.team-a.>", ordered_consumer=True, config=config)
    async for event in events.messages:
        print(event.metadata.sequence.stream, event.subject, event.data.decode(), flush=True)


asyncio.run(main())
