"""Sentences for people: numbers in words, and messages of other programs made fit for an event.  Pure.

Such a message is printable, bounded and cut between characters.
"""

from collections.abc import Iterator, Sequence

MOST_MESSAGE = 1024
"""Bytes of a message in an event or a condition; Kubernetes allows so many in the note of an Event."""

MOST_LAST_WORDS = 2048
"""Bytes of a termination message that the log keeps; the kubelet keeps as many of a container's log."""

LAST_WORDS_SHOWN = 768
"""Bytes of a termination message that a condition shows; the history has the rest."""

MOST_NAMED = 3
"""Pods that a sentence names; `muster get -o json` has all."""

_CUT = "..."

_TRACEBACK = "Traceback (most recent call last):"
"""The line with which Python begins to tell of an exception; launchers put the rank before each of its lines."""


def first(text: str, most: int = MOST_MESSAGE) -> str:
    """The beginning of a text, of at most so many bytes."""
    text = _printable(text)
    if len(text.encode()) <= most:
        return text
    return text.encode()[: most - len(_CUT)].decode(errors="ignore") + _CUT


def last(text: str, most: int) -> str:
    """The end of a text, of at most so many bytes: a crash prints its cause last."""
    text = _printable(text)
    if len(text.encode()) <= most:
        return text
    return _CUT + text.encode()[len(_CUT) - most :].decode(errors="ignore")


def ends(text: str, most: int = MOST_MESSAGE) -> str:
    """The beginning and the end of a text, of at most so many bytes: a message ends with its cause."""
    text = _printable(text)
    if len(text.encode()) <= most:
        return text
    beginning = first(text, most // 3)
    return beginning.removesuffix(_CUT) + last(text, most - len(beginning.encode()) + len(_CUT))


def in_one_line(text: str) -> str:
    """The lines of a text beside each other; a line without a letter or a digit only underlines another."""
    return " | ".join(line.strip() for line in text.splitlines() if any(map(str.isalnum, line)))


def last_words(text: str, most: int = LAST_WORDS_SHOWN) -> str:
    """The end of what a program said, in one line of at most so many bytes, and before it the exceptions that it told.

    A program may say more after its exception, such as a warning at its exit.
    """
    text = _printable(text)
    whole = in_one_line(text)
    if len(whole.encode()) <= most:
        return whole
    half = last(whole, most // 2)
    told = in_one_line("\n".join(line for line in _exceptions(text) if line.strip() not in half))
    if not told:
        return last(whole, most)
    between = " | "
    return ends(told, most - len(half.encode()) - len(between)) + between + half


def _exceptions(text: str) -> Iterator[str]:
    """The first line of each exception in a text: after its traceback, not indented."""
    prefix = None
    for line in text.splitlines():
        if line.endswith(_TRACEBACK):
            prefix = line.removesuffix(_TRACEBACK)
        elif prefix is not None and not line.removeprefix(prefix).startswith((" ", "\t")):
            prefix = None
            yield line


def with_words(sentence: str, words: str) -> str:
    """A sentence with another program's message after it, if there is one."""
    told = in_one_line(words)
    return ends(f"{sentence}: {told}") if told else sentence


def with_last_words(sentence: str, words: str) -> str:
    """A sentence with the end of what a container said: the history has more of it."""
    told = last_words(words)
    return f"{ends(sentence, MOST_MESSAGE - len(told.encode()) - 2)}: {told}" if told else sentence


def counted(number: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def in_a_row(words: list[str]) -> str:
    """`was created, runs and is Ready`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def named(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return in_a_row([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def range_words(pairs: tuple[tuple[int, int], ...]) -> str:
    """`0-3,5` for inclusive ranges."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in pairs) or "none"


def of_range_words(words: str) -> list[int]:
    """The numbers in `0-3,5`."""
    pairs = (part.partition("-") for part in words.split(",") if part)
    return [number for low, _, high in pairs for number in range(int(low), int(high or low) + 1)]


def _printable(text: str) -> str:
    """The text without control characters, except line ends."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text).strip()


def forced_deletion(namespace: str, pods: str) -> str:
    """Deletes pods whose node is off for good; `pods` are their names, with spaces between them."""
    return f"kubectl delete pod -n {namespace} {pods} --force --grace-period=0"


def without_finalizers(namespace: str, kind: str, name: str, finalizers: Sequence[str]) -> str:
    """Which finalizers keep an object that is being deleted, and what takes them off: no forced deletion does."""
    patch = f'kubectl patch {kind} -n {namespace} {name} --type=merge -p \'{{"metadata":{{"finalizers":null}}}}\''
    return f"its finalizers keep it ({', '.join(finalizers)}), and `{patch}` takes them off"
