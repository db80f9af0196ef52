"""A service as a process of the operating system.

`main.py` is the process, `settings.py` its settings, `dependencies.py` the connections that a service is built from,
`readiness.py` checks them, `health.py` answers probes and scrapers, `report.py` is the JSON of those answers.
"""
