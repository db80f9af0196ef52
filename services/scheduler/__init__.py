"""The scheduler: which slots exist, and a pod in each.

Hears: every event.
Says: `SlotsAssigned`, `SlotsReleased` (and later `JobRestarted`, `JobExpired`); `EffectRefused` of its own effects.
Alone in writing: pods and Services.
Not here: who is a member (the scaler), what phase a job is in (status).
"""
