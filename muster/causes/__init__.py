"""Causes: for each event of a job the earlier one that led to it, in plain words.  Pure; for `muster why`.

A cause is read from what an event says and from the folded job before and after it, never from how near two events
stand.  Where the log has no cause and there must be one, the link says what is unknown; nobody guesses.

`fold.py` goes through a history; what it knows so far is in `ledger.py`; `jobs.py`, `pods.py`, `requests.py` and
`waiting.py` say what led to what; `chains.py` answers questions with it, `words.py` has the words.
"""
