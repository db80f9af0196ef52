"""Follows a job's events until it runs."""

import asyncio

import muster.client
from muster.client.facts import JobRunning, SlotsAssigned


async def main():
    async with muster.client.connect() as client:
        async for event in client.events("default", "group", since=0):
            match event.fact:
                case SlotsAssigned(slots=slots):
                    print(event.sequence, event.time, f"pods in {len(slots)} roles")
                case JobRunning():
                    print(event.sequence, event.time, "it runs")
                    break


asyncio.run(main())
