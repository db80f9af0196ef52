"""The watcher records what the API server shows and the log lacks, and the timers that have expired.

Hears: every event; the resources, pods and children in the cluster.
Says: facts only (`JobObserved`, `PodsObserved`, `ScaleRequested`, `TimePassed`, ...), never a decision.
Writes nothing in Kubernetes: get, list and watch only.
A live change, a re-list after a restart and a repaired gap are one comparison, `core.observe`: a folded job, the
cache and the answers give facts and questions.  The files beside `core` watch, ask and measure.
"""
