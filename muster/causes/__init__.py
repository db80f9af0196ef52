"""Causes: for each event of a job the earlier one that led to it, in plain words.  Pure; for `muster why`.

A decision names its cause, and a fact follows from what happened to the same pod or request before.  Where the log has
no cause and there must be one, the link says what is unknown: nothing is guessed from how near two events stand.

`walk.py` goes through a history once; `decisions.py`, `pods.py` and `words.py` have the words, `waiting.py` says what a
job or a request waits for, `chains.py` answers questions.
"""
