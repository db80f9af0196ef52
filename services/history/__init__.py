"""The history service answers what happened to jobs: the aggregated API `history.muster.dev/v1`, by Kubernetes' rights.

Hears: requests that kube-apiserver passes on, and for each the events of the jobs that it asks about.
Says: nothing to the log; it may not.
Owns nothing: an answer is folded when it is asked for, in the words of the command line (`shared/telling`); it is
kept while the log has no newer event of these jobs, and there is room.
Not here: who may read what.  kube-apiserver authenticates, and is asked for each answer whether its reader may have it.
"""
