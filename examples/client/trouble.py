"""What each kind of trouble is for a program."""

import muster.client.sync
from muster.client import Failed, Refused, Transient, WaitedTooLong

with muster.client.sync.connect() as client:
    try:
        client.wait("default", "group", "Succeeded", timeout=2)
    except Failed as failure:
        print(f"it ended otherwise: {failure}")
    except WaitedTooLong as late:
        print(f"it goes on: {late}")
    except Refused as refusal:
        print(f"correct it: {refusal.reason}: {refusal}")
    except Transient as trouble:
        print(f"try again: {trouble}")
    client.delete("default", "group")
