"""The runtime that every service is: fold the log, decide, record the decision, act on what was read back.

`run.py` is the runtime, `queue.py` its work queue and the effects in flight, `appends.py` what it adds to the log,
`acts.py` what it does in the cluster, `ownership.py` the lease, `beside.py` the thread that keeps it, `claims.py` whose
an object of a taken name is, `telling.py` the log lines about jobs.
Opinions about jobs are in each service's `decide`.
"""
