"""The scheduler decides which slots exist, and keeps a pod in each.

Hears: every event.
Says: `SlotsAssigned`, `SlotsReleased`, `JobRestarted`, `JobExpired`; what it alone can know: `SecretMade`,
`SecretGone`, `AutoscalerMade`, `AutoscalerGone`, `EffectRefused` of its own effects.
Alone in writing: pods, Services, Secrets and autoscalers; it deletes jobs whose time to live is over.
Not here: members (the scaler), phases (the status service).
"""
