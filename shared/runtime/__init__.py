"""The runtime that every service is: fold the log, decide, record the decision, act on what was read back.

`run.py` is the runtime, `appends.py` what it adds to the log, `acts.py` what it does in the cluster, `effects.py` its
effects in flight, `ownership.py` the lease, `claims.py` whose an object of a taken name is, `telling.py` the log lines
about jobs.
No opinion about jobs lives here: those are in each service's `decide`.
"""
