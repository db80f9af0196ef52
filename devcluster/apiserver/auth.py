"""Who is calling: bearer tokens from a file like that of kube-apiserver's `--token-auth-file`.

There is no authorization: whoever is known may do everything.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from devcluster.apiserver.errors import ApiError


class User(NamedTuple):
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()

    def info(self) -> dict[str, object]:
        groups = [*self.groups, "system:authenticated"]
        return {"username": self.name, "uid": self.uid, "groups": groups}


ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))


def read_tokens(path: Path) -> dict[str, User]:
    """Lines `token,user,uid,"group1,group2"`."""
    with path.open(newline="") as lines:
        rows = [*csv.reader(lines)]
    return {token: User(name, uid, tuple(groups.split(",")) if groups else ()) for token, name, uid, groups in rows}


def authenticate(header: str, users: Mapping[str, User]) -> User:
    """The user of an `Authorization` header."""
    scheme, _, token = header.partition(" ")
    user = users.get(token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise ApiError(401, "Unauthorized", "Unauthorized")
    return user
