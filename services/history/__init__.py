"""The history service answers what happened to jobs: the aggregated API `history.muster.dev/v1`, by Kubernetes' rights.

Hears: requests that kube-apiserver passes on, and the log.
Says: nothing to the log; it may not.
Owns nothing: lists, jobs and watches are made of one fold (`view.py`), the parts of a job of its own events, in the
words of the command line (`shared/telling`); an answer is kept while the log has no newer event of these jobs, and
there is room.
Not here: who may read what.  kube-apiserver authenticates, and is asked for each answer whether its reader may have it.
"""
