"""Suspends a job and resumes it, without a loop of asyncio."""

import muster.client.sync

with muster.client.sync.connect() as client:
    client.suspend("default", "group")
    print(client.get("default", "group").phase)
    client.resume("default", "group")
    for cause in client.why("default", "group"):
        print(cause.sequence, cause.text)
