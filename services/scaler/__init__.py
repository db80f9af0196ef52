"""The scaler decides which workers are members, and works off the queue of scale requests and edits of the size.

Hears: every event.
Says: `ScaleAccepted`, `ScaleRejected`, `ScriptStarted`, `HostsPublished`, `WorkersReleased`, `ScaleSucceeded`,
`ScaleFailed`, `ScaleCancelled`; what it alone can know: `ScriptFinished`, `DrainChecked`, `EffectRefused` of its own
effects.
Alone in writing: the hosts ConfigMap, the launcher's hosts annotation, the owner reference of requests; alone in
running commands in launchers.
Not here: pods (the scheduler makes one for each accepted slot and deletes those of released ones).
"""
