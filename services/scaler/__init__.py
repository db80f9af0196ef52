"""The scaler: who is a member, and the queue of scale requests.

Hears: every event.
Says: `ScaleAccepted`, `ScaleRejected`, `HostsPublished`, `WorkersReleased`, `ScaleSucceeded`, `ScaleFailed`,
`ScaleCancelled`; `EffectRefused` of its own effects.
Alone in writing: the hosts ConfigMap, the launcher's hosts annotation, the owner reference of requests.
Not here: pods (the scheduler makes one for each accepted slot and deletes those of released ones).
"""
