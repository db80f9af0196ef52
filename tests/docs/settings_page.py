"""The page of all settings, made from the fields of `Settings` and their docstrings.

Pure, but for `make pages`, which writes `docs/settings.md`.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from shared.process.settings import HttpsPort, Settings

PAGE = """\
# Settings

Environment variables, read once at the start; a wrong value ends the process. Users and certificates aside, give all
services the same values, in the chart by [values.yaml](../deploy/helm/muster/values.yaml) or `extraEnv`.
A *list* has commas; *seconds* are a number (`90`) or an ISO 8601 duration (`PT1M30S`). In brackets is the default.
`NATS_…` and `KUBECONFIG` may have the prefix `MUSTER_`; the shorter name wins.

{settings}

## Other variables

{others}
"""

OTHERS = (
    ("KUBERNETES_SERVICE_HOST", "every process", "Kubernetes sets it in each pod."),
    ("MUSTER_FORWARD_TO", "forward", "The address of `--to`, which may hold a secret."),
    ("MUSTER_PORTS", "demo, tests", "The range of local ports; else `10000-30000`."),
    ("KUBEFLOW_TRAINER_SERVER_URL", "muster.train", "Where a training program reports; Muster sets it in pods."),
    ("KUBEFLOW_TRAINER_SERVER_CA_CERT", "muster.train", "The file with its authority."),
    ("KUBEFLOW_TRAINER_SERVER_TOKEN", "muster.train", "The file with the token for it."),
    ("DOCKER_HOST", "demo on K3s", "The address of the Docker engine; else `unix:///var/run/docker.sock`."),
    ("VIRTUAL_ENV", "demo", "The environment whose Python `muster try` runs."),
    ("CONDA_PREFIX", "demo", "The same of conda; without both the first `python3` that is not Muster's."),
    ("TMPDIR", "demo", "The parent of the temporary folder."),
    ("KUBEBUILDER_ASSETS", "development cluster", "A folder with the real control plane's programs."),
    ("NO_COLOR", "command line", "Any value: `muster get` has no colours."),
    ("TERM", "command line", "`dumb` is a terminal without colours."),
    ("XDG_CACHE_HOME", "development cluster", "The parent of the folder for programs; else `~/.cache`."),
    ("DEVCLUSTER_NODE_TOKEN", "development cluster", "Its API server and nodes share it."),
)
"""Variables that are no field of `Settings`."""


def page() -> str:
    """`docs/settings.md`."""
    same: dict[str, list[str]] = {}
    for name, field, said in _fields():
        meaning = f"{_value(field.annotation)}{_default(field)}: {_joined(said)}"
        same.setdefault(meaning, []).append(f"`{name}`")
    rows = (f"- {', '.join(names)} {meaning}" for meaning, names in same.items())
    others = (f"- `{name}` ({reader}): {meaning}" for name, reader, meaning in OTHERS)
    return PAGE.format(settings="\n".join(rows), others="\n".join(others))


def _fields() -> Iterator[tuple[str, FieldInfo, str]]:
    """All by their variables, with what each is for; what a port is for is said at its number."""
    said, of_port = docstrings(Settings), docstrings(HttpsPort)
    for name, field in Settings.model_fields.items():
        if field.annotation is not HttpsPort:
            yield variable(name), field, said[name]
            continue
        for inner, part in HttpsPort.model_fields.items():
            whole = f"{said[name]} {of_port[inner]}" if inner == "port" else of_port[inner]
            yield f"{variable(name)}_{inner.upper()}", part, whole


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Of its fields.  Where pydantic is told to read them, every process reads the sources at its start."""
    (parsed,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(parsed, ast.ClassDef)
    return {
        ast.unparse(field.target): inspect.cleandoc(str(ast.literal_eval(said.value)))
        for field, said in pairwise(parsed.body)
        if isinstance(field, ast.AnnAssign) and isinstance(said, ast.Expr)
    }


def variable(name: str) -> str:
    """The environment variable of a field; the first of those that it has."""
    alias = Settings.model_fields[name].validation_alias
    if isinstance(alias, AliasChoices):
        return str(alias.choices[0])
    return f"{Settings.model_config.get('env_prefix')}{name.upper()}"


def _value(annotation: Any) -> str:
    """What a person writes for a value of this type."""
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(annotation))
    kinds = {*_types(annotation)}
    if Path in kinds:
        return "path"
    if tuple in kinds:
        return "list"
    return {bool: "boolean", int: "number", timedelta: "seconds"}.get(annotation, "text")


def _types(annotation: Any) -> Iterator[Any]:
    yield get_origin(annotation) or annotation
    for part in get_args(annotation):
        yield from _types(part)


def _default(field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, timedelta):
        return f" (`{default.total_seconds():g}`)"
    if isinstance(default, bool):
        return f" (`{str(default).lower()}`)"
    if isinstance(default, tuple):
        default = ",".join(default)
    return f" (`{default}`)" if default not in (None, "") else ""


def _joined(text: str) -> str:
    return " ".join(text.split())


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "settings.md").write_text(page())


if __name__ == "__main__":
    main()
