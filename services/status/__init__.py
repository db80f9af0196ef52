"""The status service decides the phase of a job, and writes its status.

Hears: every event.
Says: one decision per phase (`JobCreated`, `JobRunning`, `JobScaling`, `JobSuspending`, `JobSuspended`,
`JobRestarting`, `JobSucceeded`, `JobFailed`);
`EffectRefused` of its own effects.
Alone in writing: `.status` of every kind, and Kubernetes Events.
Not here: anything that makes or removes pods.
"""
