"""The job: what it asks for, what happened to it, what is true of it now.  Pure.

`spec` is what a user wants, `events` every fact and decision there is by its author, `state` what is true of a job
(`request` and `losses` are parts of it), `evolve` the fold, `verdict` whether it is over, `timing` which timer is due
next, `chain` the proof that nothing was lost or changed, `naming` every name that users see, `upcast` old events in
new shapes.
No clock, no chance, no network, no logging: what they would bring comes in as events.
"""
