"""The names and paths of the aggregated API of histories; their form tells kube-apiserver what is asked for.  Pure."""

from collections.abc import Mapping

import msgspec

from shared.untrusted import whole_number

GROUP = "history.muster.dev"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
PLURAL = "jobhistories"
KIND = "JobHistory"

ROOT = f"/apis/{API_VERSION}"
PARTS = ("events", "why", "at")
"""The subresources of a history."""


class Question(msgspec.Struct, frozen=True):
    """What one request asks for."""

    namespace: str = ""
    """The namespace; empty for all."""
    name: str = ""
    """`KIND.NAME`; empty for a list."""
    part: str = ""
    """One of `PARTS`; empty for the job itself."""
    at: str = ""
    """The sequence or the time of `at`."""
    about: str = ""
    """Of `why`: a pod or a request of the job."""
    uid: str = ""
    """An earlier job of the name; empty for the newest."""
    after: int = 0
    """Of `events`: only those after this sequence."""
    text: bool = False
    """True for lines of text in place of JSON."""
    every: bool = False
    """True for a list of all jobs that had a name, and not of the newest alone."""

    @property
    def verb(self) -> str:
        """The verb that Kubernetes' rights have for it."""
        return "get" if self.name else "list"


def query_of(question: Question) -> dict[str, str]:
    """The query of a question."""
    words = {"about": question.about, "uid": question.uid, "after": str(question.after or "")}
    words |= {"output": "text" if question.text else "", "every": "true" if question.every else ""}
    return {name: word for name, word in words.items() if word}


def path_of(question: Question) -> str:
    """The path of a question; the other options are its query."""
    where = f"/namespaces/{question.namespace}" if question.namespace else ""
    steps = filter(None, (question.name, question.part, question.at))
    return "/".join((f"{ROOT}{where}/{PLURAL}", *steps))


def with_query(question: Question, query: Mapping[str, str]) -> Question:
    """The question with the options of its query that its part has; other ones are ignored."""
    part, named = question.part, bool(question.name)
    return msgspec.structs.replace(
        question,
        about=query.get("about", "") if part == "why" else "",
        uid=query.get("uid", "") if named else "",
        after=(whole_number(query.get("after", "")) or 0) if part == "events" else 0,
        text=part == "why" and query.get("output") == "text",
        every=not named and query.get("every") == "true",
    )


def parse(path: str) -> Question | None:
    """The question of a path; None if the API has no such path."""
    if not path.startswith(f"{ROOT}/"):
        return None
    match path.removeprefix(f"{ROOT}/").split("/"):
        case ["jobhistories"]:
            return Question()
        case ["namespaces", namespace, "jobhistories"] if namespace:
            return Question(namespace)
        case ["namespaces", namespace, "jobhistories", name] if namespace and name:
            return Question(namespace, name)
        case ["namespaces", namespace, "jobhistories", name, ("events" | "why") as part] if namespace and name:
            return Question(namespace, name, part)
        case ["namespaces", namespace, "jobhistories", name, "at", at] if namespace and name and at:
            return Question(namespace, name, "at", at)
    return None


def words_of(name: str) -> list[str]:
    """`trainingjob.resnet` as the words `KIND/NAME` that it may be, the longest kind first: both may have dots."""
    steps = name.split(".")
    cuts = range(len(steps) - 1, 0, -1)
    return [f"{'.'.join(steps[:cut])}/{'.'.join(steps[cut:])}" for cut in cuts]
