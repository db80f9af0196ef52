"""What a spec may ask for and this release cannot do: refused, because ignoring it would be a lie.  Pure."""

from shared.job.spec import JobSpec, Problem


def unsupported(spec: JobSpec) -> tuple[Problem, ...]:
    """A problem for each wish that would not be fulfilled."""
    wishes = {
        "spec.suspend": spec.suspend,
        "spec.activeDeadlineSeconds": spec.active_deadline_seconds is not None,
        "spec.ttlSecondsAfterFinished": spec.ttl_seconds_after_finished is not None,
    }
    return tuple(
        Problem(reason="NotSupportedYet", field=field, message="leave it out: this release cannot do it yet")
        for field, wished in wishes.items()
        if wished
    )
