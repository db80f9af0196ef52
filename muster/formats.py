"""The formats that commands print and send."""

from enum import StrEnum


class Output(StrEnum):
    """The formats of `muster get`."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"


class Format(StrEnum):
    """The forms of a request of `muster forward`."""

    binary = "binary"
    structured = "structured"
    slack = "slack"
