"""A service as an operating system's process: settings, signals, probes, and what it needs from outside.

`main.py` is the process, `settings.py` what it is told from outside, `dependencies.py` what a service is built from,
`readiness.py` checks what is outside, `health.py` answers probes and scrapers, `report.py` is the JSON it answers with.
"""
