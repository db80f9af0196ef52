"""Golden files: what is rendered, reviewed as a diff.  `REWRITE_GOLDEN=1 pytest ...` writes them anew."""

import os
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent


class _Dumper(yaml.SafeDumper):
    """Files within a document line by line."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def assert_golden(name: str, document: dict[str, Any]) -> None:
    """`document` is what the golden file `<name>.yaml` says."""
    path = FOLDER / f"{name}.yaml"
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120)
    if os.environ.get("REWRITE_GOLDEN") == "1":
        path.write_text(text)
    assert path.exists(), f"{path.name} does not exist: run once with REWRITE_GOLDEN=1, and review it"
    assert text == path.read_text(), f"{path.name} differs: run with REWRITE_GOLDEN=1, and review the diff"
