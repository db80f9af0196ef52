"""Tables that a run puts into a page: `--into FILE` replaces what stands between two comments, which name the command.

place = Place(parser, "bench")
given = parser.parse_args()
into = place.of(given)
into(text)
"""

import argparse
from collections.abc import Callable
from pathlib import Path

END = "<!-- and ends -->"


class Place:
    """Where the table of one command belongs in a file."""

    def __init__(self, parser: argparse.ArgumentParser, command: str) -> None:
        """`command` is the target of `make`."""
        self._parser = parser
        self._begin = f"<!-- The table of `make {command}` begins -->"
        parser.add_argument("--into", type=Path, metavar="FILE", help="put the table between its marks in a page too")

    def of(self, given: argparse.Namespace) -> Callable[[str], None]:
        """Puts a table there, or nowhere without `--into`; ends the program in one line if there is no such place."""
        into: Path | None = given.into
        if into is None:
            return lambda table: None
        try:
            _, begin, rest = into.read_text().partition(self._begin)
        except OSError as error:
            self._parser.exit(2, f"the table cannot be put into {into}: {error.strerror}\n")
        if not begin or END not in rest:
            self._parser.exit(2, f"{into} has no place for the table; add the lines {self._begin} and {END}\n")

        def put(table: str) -> None:
            before, begin, rest = into.read_text().partition(self._begin)
            _, _, after = rest.partition(END)
            into.write_text(f"{before}{begin}\n{table}\n{END}{after}")

        return put
