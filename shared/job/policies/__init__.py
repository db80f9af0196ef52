"""The rules for the end of a pod or of an attempt, and for what follows, a file for each.  Pure.

`verdict.py` decides when an attempt is over, `retries.py` which exits are retried, whether another attempt follows and
how long each retry waits; `replacement.py` which lost pods are replaced; `nodes.py` what a job does about nodes that
are lost or about to go; `quota.py` whether the job may run at all; `capacity.py` with how many
workers it trains.
"""
