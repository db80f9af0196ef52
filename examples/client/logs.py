"""The last lines of each job."""

import muster.client.sync

with muster.client.sync.connect() as client:
    for job in client.list("default"):
        for line in client.logs("default", job.called, tail=3):
            print(line.pod, line.text)
