"""The machine that every service is: fold the log, decide, record, act.

`run.py` is the machine, `effects.py` its memory of what is under way, `ownership.py` who may act,
`health.py` what probes ask, `settings.py` and `telemetry.py` what a process needs around it, `main.py` the process.
No opinion about jobs lives here: those are in each service's `decide`.
"""
