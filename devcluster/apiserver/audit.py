"""An optional record of every request, one JSON line each, for tests that ask who did what.

A watch is recorded when it begins, everything else when it is answered.
"""

import time
from pathlib import Path

import msgspec

from devcluster.apiserver.call import Target


class Audit:
    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def record(self, *, user: str, verb: str, target: Target, code: int) -> None:
        line = {
            "time": round(time.time(), 6),
            "user": user,
            "verb": verb,
            "group": target.group,
            "resource": target.plural,
            "subresource": target.subresource,
            "namespace": target.namespace,
            "name": target.name,
            "code": code,
        }
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()
