"""The command line: run Muster, look into its log, ask for scaling, try it all on a laptop.

It never writes into the log: what it wants it writes to Kubernetes, where RBAC decides who may.
Only `setup`, with an administrator's credentials, makes the stream and the buckets.
"""
