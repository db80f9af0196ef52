"""The names and paths of the aggregated API of histories; their form tells kube-apiserver what is asked for.  Pure."""

from collections.abc import Mapping

import msgspec

from shared.errors import Refused
from shared.untrusted import whole_number

NDJSON = "application/x-ndjson"
"""The media type of events, one JSON object in each line."""
GROUP = "history.muster.dev"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
PLURAL = "jobhistories"
KIND = "JobHistory"

ROOT = f"/apis/{API_VERSION}"
WHOLE = ("events", "why", "report")
PARTS = (*WHOLE, "at")
"""The subresources of a history; `at` has a moment in its path."""
PEOPLE = "people"
"""The subresource with no path of its own: who may get it is told in `WHOLE` who made each change."""
TEXTS = ("why", "report")
"""Parts that are told as lines of text as well."""


INCLUDED = ("None", "Metadata", "Object")
"""The values of `includeObject`: `kubectl get --sort-by` asks for whole objects."""
NAMED = "metadata.name="
"""The field selector of one name."""
SECONDS_DIGITS = 9


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
    only: str = ""
    """Of a list: the one name that it may have, as `KIND.NAME`."""
    watch: bool = False
    """True for a stream: of a list's changes, or of `events`; `after` is the sequence after which it begins."""
    bookmarks: bool = False
    """True if a watch may tell how far it has come."""
    seconds: int = 0
    """The most seconds of a stream; 0 for as long as the service likes."""
    labels: str = ""
    """Of a list: its label selector."""
    fields: str = ""
    """Of a list: its field selector; one that has a single name is `only` as well."""
    people: bool = False
    """True for an answer that says who made each change; a right decides it, and not who asks."""
    since: str = ""
    """Of a list: only jobs with an event at or after this time; of `report`: what places did from then on."""
    limit: int = 0
    """Of a list or of `events`: the most of one answer, which then says where to go on; 0 for all."""
    go_on: str = ""
    """Of a list: what an answer before said about where to go on."""
    include: str = ""
    """Of a table: what each row has besides its cells, one of `INCLUDED`; the metadata if it is empty."""

    @property
    def verb(self) -> str:
        """The verb that Kubernetes' rights have for it."""
        return "get" if self.name else "watch" if self.watch else "list"


def query_of(question: Question) -> dict[str, str]:
    words = {"about": question.about, "uid": question.uid, "after": str(question.after or "")}
    words |= {"output": "text" if question.text else "", "every": "true" if question.every else ""}
    words |= {"labelSelector": question.labels, "limit": str(question.limit or ""), "continue": question.go_on}
    words |= {"since": question.since, "allowWatchBookmarks": "true" if question.bookmarks else ""}
    words |= {"watch": "true" if question.watch else "", "fieldSelector": question.only and f"{NAMED}{question.only}"}
    if not question.name:
        words |= {"after": "", "resourceVersion": words["after"]}
    return {name: word for name, word in words.items() if word}


def path_of(question: Question) -> str:
    """The path of a question; the other options are its query."""
    where = f"/namespaces/{question.namespace}" if question.namespace else ""
    steps = filter(None, (question.name, question.part, question.at))
    return "/".join((f"{ROOT}{where}/{PLURAL}", *steps))


def with_query(question: Question, query: Mapping[str, str]) -> Question:
    """The question with the options of its query that its part has; other ones are ignored.

    Raises `Refused` for a version, a limit or a part of a row that is none.
    """
    part, named = question.part, bool(question.name)
    streams = not named or part == "events"
    watch = streams and query.get("watch") in ("1", "true")
    selector = "" if named else query.get("fieldSelector", "")
    if (include := query.get("includeObject", "")) not in ("", *INCLUDED):
        raise Refused(f"includeObject is {', '.join(INCLUDED)}, and not {include[:64]!r}", reason="Invalid")
    return msgspec.structs.replace(
        question,
        about=query.get("about", "") if part == "why" else "",
        uid=query.get("uid", "") if named else "",
        after=_after(query, watch=watch, part=part),
        text=part in TEXTS and query.get("output") == "text",
        every=not named and query.get("every") == "true",
        only=_only(selector),
        fields=selector,
        labels="" if named else query.get("labelSelector", ""),
        since=query.get("since", "") if not named or part == "report" else "",
        limit=_limit(query.get("limit", "")) if streams and not watch else 0,
        go_on="" if named or watch else query.get("continue", ""),
        include="" if part else include,
        watch=watch,
        bookmarks=watch and query.get("allowWatchBookmarks") in ("1", "true"),
        seconds=(whole_number(query.get("timeoutSeconds", ""), SECONDS_DIGITS) or 0) if watch else 0,
    )


def _only(selector: str) -> str:
    """The name of a selector of one name alone; empty for any other."""
    name = selector.removeprefix(NAMED).removeprefix("=")
    return name if selector.startswith(NAMED) and not {",", "="} & {*name} else ""


def _limit(words: str) -> int:
    if (known := whole_number(words or "0", SECONDS_DIGITS)) is None:
        raise Refused(f"the limit {words[:64]!r} is no number", reason="Invalid")
    return known


def _after(query: Mapping[str, str], *, watch: bool, part: str) -> int:
    if part == "events":
        if (known := whole_number(words := query.get("after") or "0")) is None:
            raise Refused(f"after {words[:64]!r} is no sequence; leave it out for the first event", reason="Invalid")
        return known
    if part or not watch or not (version := query.get("resourceVersion", "")):
        return 0
    if (known := whole_number(version)) is None:
        raise Refused(f"the resourceVersion {version[:64]!r} is no number; list first", reason="Invalid")
    return known


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
        case ["namespaces", namespace, "jobhistories", name, "at", at] if namespace and name and at:
            return Question(namespace, name, "at", at)
        case ["namespaces", namespace, "jobhistories", name, part] if namespace and name and part in WHOLE:
            return Question(namespace, name, part)
    return None


def words_of(name: str) -> list[str]:
    """`trainingjob.resnet` as the words `KIND/NAME` that it may be, the longest kind first: both may have dots."""
    steps = name.split(".")
    cuts = range(len(steps) - 1, 0, -1)
    return [f"{'.'.join(steps[:cut])}/{'.'.join(steps[cut:])}" for cut in cuts]


ACCOUNTS = "system:serviceaccount:"
Share = tuple[str, ...]
"""A tenant's, and within it a user's."""


def share_of(user: str) -> Share:
    """The user's share of places: a namespace has as many service accounts as it likes, which have one together."""
    kind, accounts, account = user.rpartition(ACCOUNTS)
    return (f"{ACCOUNTS}{account.partition(':')[0]}", user) if accounts and not kind else (user,)
