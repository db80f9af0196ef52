"""The job: what it asks for, what happened to it, what is true of it now.  Pure.

`spec` is what a user wants, `events` every fact and decision there is and who writes it, `state` the fold
(`Job`, `evolve`), `verdict` whether it is over, `timing` which timer is due next, `chain` the proof that
nothing was lost or changed, `naming` every name that users see, `upcast` old events in new shapes.
No clock, no chance, no network, no logging: what they would bring comes in as events.
"""
