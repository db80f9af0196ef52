"""Trains the digits example, lets it grow to four workers, and draws their number over time."""

from pathlib import Path

import yaml

import muster.client.sync
from muster.client.facts import HostsPublished, JobFailed, JobSucceeded

manifest = yaml.safe_load(Path(__file__).with_name("training_job.yaml").read_text())
# A name of its own: that of the demo may be taken.
manifest["metadata"] = {"generateName": "digits-"}

with muster.client.sync.connect() as client:
    job = client.create("default", manifest)
    client.wait("default", job.called, "Running")
    client.scale("default", job.called, to=4, wait=False)
    for event in client.events("default", job.called, uid=job.uid):
        if isinstance(event.fact, HostsPublished):
            print(event.time[11:19], sum(last - first + 1 for first, last in event.fact.members) * "##")
        elif isinstance(event.fact, JobSucceeded | JobFailed):
            print(event.time[11:19], event.type)
            break
