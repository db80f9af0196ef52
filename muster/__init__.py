"""The command line: run Muster, look into its log, ask for scaling, try it all on a laptop.

What it asks of a job it writes to Kubernetes, where RBAC decides who may.
Only `setup`, with an administrator's credentials, writes to the log: it makes the streams and the first event.
"""
