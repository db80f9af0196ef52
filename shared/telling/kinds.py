"""The kinds of jobs that the commands know, and their names on the command line."""

from collections.abc import Iterator

from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.installation import plugins
from shared.job.state import Job


def known_kinds() -> Kinds:
    """The built-in kinds, and those of installed packages."""
    return plugins.kinds()


def words_of(framework: Framework) -> Iterator[str]:
    """The names of a kind that kubectl accepts, in lower case and without its group."""
    resource, described = framework.resource, framework.definition
    yield resource.kind.lower()
    yield resource.plural
    yield from filter(None, (described.singular.lower(), *described.short_names))


def called(framework: Framework, kinds: Kinds) -> str:
    """The unambiguous name of a kind: three groups have an MXJob."""
    word = framework.resource.kind.lower()
    several = sum(other.resource.kind.lower() == word for other in kinds) > 1
    return f"{word}.{framework.resource.group}" if several else word


def word_of(job: Job, kinds: Kinds) -> str:
    """The name of a job's kind, known or not; `job` before its resource was seen."""
    framework = kinds.find(job.api_version, job.kind)
    if framework is not None:
        return called(framework, kinds)
    return f"{job.kind.lower()}.{job.api_version.partition('/')[0]}" if job.kind else "job"
