"""`docs/pods.md`: written from the tables, which have every field of the newest Kubernetes."""

from pathlib import Path

import pytest

from shared.cluster import pod_fields
from shared.frameworks.templates import NAMED_BY_MUSTER
from tests.docs.pod_fields import FILES, of_client, text
from tests.docs.pods_page import CONTAINER, POD, page

WRITTEN = (Path(__file__).parents[2] / "docs" / "pods.md").read_text()


def test_the_page_is_the_one_that_the_code_writes() -> None:
    assert page() == WRITTEN, "run `make pages` and review the diff"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_the_fields_are_those_of_the_installed_client(file: Path) -> None:
    assert text(of_client()) == file.read_text(), "run `python -m tests.docs.pod_fields`, review the diff"


@pytest.mark.parametrize(("kind", "rules"), [("PodSpec", POD), ("Container", CONTAINER)])
def test_a_table_says_what_becomes_of_every_field(kind: str, rules: dict[str, object]) -> None:
    assert rules.keys() == pod_fields.types()[kind].keys()


def test_the_page_names_every_field_that_muster_sets() -> None:
    overridden = {name for name, rule in POD.items() if rule.treatment == "overridden"}
    assert overridden == {*NAMED_BY_MUSTER, "dnsPolicy", "restartPolicy", "subdomain"}
