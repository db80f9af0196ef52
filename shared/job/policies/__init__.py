"""What follows from the end of a pod or of an attempt, a file for each policy.  Pure.

`exit_codes.py` says which exits are retried; `success.py`, `failure.py` and `limits.py` say when an attempt is over;
`replacement.py` says which empty slots are filled again; `restart.py` says whether another attempt follows.
`shared.job.verdict` asks them in their order.  Nothing here records or does anything.
"""
