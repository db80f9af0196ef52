"""Reading what a hosts script prints."""

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.examples.yard import DIGITS


def _hosts() -> ModuleType:
    # By its path: the programs of the example are no package, so that a pod can run them as they lie.
    spec = importlib.util.spec_from_file_location("digits_hosts", DIGITS / "hosts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


hosts = _hosts()


@pytest.mark.parametrize(
    ("output", "names"),
    [
        pytest.param("", [], id="no worker is an answer"),
        pytest.param("b:1\na:2\n", ["b", "a"], id="the order is kept"),
        pytest.param("\n  a:1  \r\n\n", ["a"], id="space around lines means nothing"),
    ],
)
def test_a_good_list(output: str, names: list[str]) -> None:
    assert [host.name for host in hosts.parse(output)] == names


@pytest.mark.parametrize(
    "output",
    [
        pytest.param("a", id="no slots"),
        pytest.param("a:", id="slots cut off"),
        pytest.param("a:0", id="zero slots"),
        pytest.param("a:-1", id="less than zero slots"),
        pytest.param("a:x", id="slots that are no number"),
        pytest.param(":1", id="no name"),
        pytest.param("a b:1", id="two names"),
        pytest.param("a..b:1", id="a name that no resolver takes"),
        pytest.param("a:" + "9" * 5000, id="more slots than there can be"),
        pytest.param("a:1\na:1", id="a name twice"),
        pytest.param("a:1\nsh: cat: not found", id="one bad line among good ones"),
    ],
)
def test_a_bad_line_spoils_the_list(output: str) -> None:
    with pytest.raises(hosts.HostsError):
        hosts.parse(output)


async def test_a_script_that_fails_or_is_missing_is_reported(tmp_path: object) -> None:
    with pytest.raises(hosts.HostsError, match="exit code 1"):
        await hosts.discover("/bin/false")
    with pytest.raises(hosts.HostsError, match="No such file"):
        await hosts.discover(f"{tmp_path}/discover_hosts.sh")
