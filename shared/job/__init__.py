"""The job: what it asks for, what happened to it, what is true of it now.  Pure.

`spec` has what a user asks for, `views` what the watcher sees of pods and children, `events` every fact and decision
by its author, `state` the job, composed of `attempt`, `membership`, `scaling` and `integrity`.
`evolve` is one step of the fold, `fold` has the histories of a log, `chain` proves that no event was lost or changed,
`decoding` reads events, `metrics` counts jobs during the fold.
`policies` has the rules for the ends of pods and attempts, `verdict` applies them, `timing` says which timers run,
`timers` has their names, `steps` is what a service may do, `naming` has every name that users see.
Nothing here reads a clock, draws a random number, opens a connection or logs: events bring all input.
"""
