"""The rules for the end of a pod or of an attempt, and for what follows, a file for each.  Pure.

`exit_codes.py` has the exits that are retried; `success.py`, `failure.py` and `limits.py` decide when an attempt is
over; `replacement.py` decides which lost pods are replaced, `restart.py` whether another attempt follows, and
`back_off.py` how long each waits; `quota.py` whether the job may run at all.
`shared/job/verdict.py` applies them in their order.
"""
