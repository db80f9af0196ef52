"""The command line: run Muster, read its log, ask for scaling, try all of it on a laptop.

A command that asks something of a job writes to Kubernetes, where RBAC applies.
Only `setup`, with an administrator's credentials, writes to the log: it makes the streams and the first event.
"""
