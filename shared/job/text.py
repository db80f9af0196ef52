"""Sentences for people: numbers in words, and messages of other programs made fit for an event.  Pure.

Such a message is printable, bounded and cut between characters.
"""

MOST_MESSAGE = 1024
"""Bytes of a message in an event or a condition; Kubernetes allows so many in the note of an Event."""

MOST_LAST_WORDS = 2048
"""Bytes of a termination message that the log keeps; the kubelet keeps as many of a container's log."""

LAST_WORDS_SHOWN = 512
"""Bytes of a termination message that a condition shows; the history has the rest."""

_CUT = "..."


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


def in_one_line(text: str) -> str:
    """The lines of a text beside each other."""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())


def with_words(sentence: str, words: str) -> str:
    """A sentence with another program's message after it, if there is one."""
    return first(f"{sentence}: {in_one_line(words)}") if words else sentence


def with_last_words(sentence: str, words: str) -> str:
    """A sentence with the end of what a container said: the history has more of it."""
    return with_words(sentence, last(words, LAST_WORDS_SHOWN))


def counted(number: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def in_a_row(words: list[str]) -> str:
    """`was created, runs and is Ready`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def range_words(pairs: tuple[tuple[int, int], ...]) -> str:
    """`0-3,5` for inclusive ranges."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in pairs) or "none"


def _printable(text: str) -> str:
    """The text without control characters, except line ends."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text).strip()
