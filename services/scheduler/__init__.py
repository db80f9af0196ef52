"""The scheduler: which slots exist, and a pod in each.

Hears: every event.
Says: `SlotsAssigned`, `SlotsReleased`, `JobRestarted`, `JobExpired`; `EffectRefused` of its own effects.
Alone in writing: pods, Services and Secrets; it deletes jobs whose time to live is over.
Not here: who is a member (the scaler), what phase a job is in (status).
"""
