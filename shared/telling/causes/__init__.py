"""Causes: for each event of a job the earlier one that led to it, in plain words.  Pure; for `muster why`.

A decision names its cause; the cause of a fact is the last event of the same pod or request.  If the log lacks a cause
that must exist, the link says what is unknown: no cause is guessed from the order of events.

`sentences.py` says each event in words, and `walk.py` finds its cause while it folds a history once to `links.py`;
`chains.py` answers questions, and `outlook.py` says what is next.
"""
