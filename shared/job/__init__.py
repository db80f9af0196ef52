"""The job: what it asks for, what happened to it, what is true of it now.  Pure.

`spec` is what a user wants, `views` what is seen of pods and children, `events` every fact and decision there is by
its author, `state` what is true of a job (`request`, `losses`, `conditions` and `milestones` are parts of it).
`evolve` is the fold's one step, `fold` all histories of a log, `chain` the proof that nothing was lost or changed,
`upcast` old events in new shapes, `metrics` counts jobs while the log is folded.
`verdict` says whether a job is over, `replacement` which pods are owed, `timing` which timer is due next, `steps` what
a service may do about it, `naming` every name that users see.
No clock, no chance, no network, no logging: what they would bring comes in as events.
"""
