"""The runtime that every service is: fold the log, decide, record the decision, act on what was read back.

`run.py` is the runtime, `queue.py` its work queue and the effects in flight, `appends.py` its appends to the log,
`acts.py` its calls to the cluster.  `lease.py` is the lease and the thread that renews it, `ownership.py` says
whose an object is, `log_lines.py` writes about jobs.  The rules about jobs are in each service's `decide`.
"""
