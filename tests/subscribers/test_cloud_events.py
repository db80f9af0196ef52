"""What a subscriber is sent is a CloudEvent to the official parser.

The SDK has no binding for NATS, whose headers in binary mode are HTTP's.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary_event

from tests.kit.nats import READY, connected
from tests.kit.subscribers import a_log_for_subscribers, stranger, write


@pytest.mark.nats
async def test_an_event_is_read_by_the_official_parser(tmp_path: Path):
    async with a_log_for_subscribers(tmp_path) as server, stranger(server) as client:
        (sequence,) = await write(server, 1)
        subscription = await client.jetstream().subscribe("jobs.team-a.>", ordered_consumer=True)
        message = await subscription.next_msg(timeout=READY)
        async with connected(server) as log:
            identity = await log.identity()
            stored = await log.last("jobs.team-a.>")
    assert stored is not None
    assert stored.sequence == sequence == message.metadata.sequence.stream
    event = from_binary_event(HTTPMessage(headers=dict(message.headers or {}), body=message.data))
    assert event.get_id() == stored.event_id
    assert event.get_type() == "dev.muster.SlotsAssigned"
    assert event.get_source() == f"urn:uuid:{identity}#scheduler"
    assert event.get_time() == datetime(2026, 1, 1, tzinfo=UTC)
    assert event.get_specversion() == "1.0"
    assert event.get_data() == {}
    assert set(event.get_attributes()) == {"id", "source", "specversion", "time", "type"}
