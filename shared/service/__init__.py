"""The machine that every service is: fold the log, decide, record, act.

`run.py` is the machine, `appends.py` what it adds to the log, `acts.py` what it does in the cluster and `effects.py`
its memory of what is under way there, `ownership.py` who may act, `claims.py` whose an object of a taken name is,
`scope.py` and `apart.py` that no two installations act on the same jobs,
`health.py` what probes and scrapers ask, `meters.py` what is counted of a process and `metrics.py` how it is told,
`telling.py` the lines about jobs, `readiness.py` who looks after what is outside, `risks.py` what could go wrong with
the log,
`permissions.py` what each service may do,
`plugins.py` finds the frameworks of users and `guarded.py` stands in front of them,
`settings.py` and `telemetry.py` what a process needs around it, `main.py` the process.
No opinion about jobs lives here: those are in each service's `decide`.
"""
