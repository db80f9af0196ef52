"""The page about other operators in the benchmark: its example is an adapter, and a file that is none is refused."""

from pathlib import Path

import pytest

from tests.bench.real.peers import PARTS, AdapterError, load
from tests.bench.real.world import path_of

PAGE = Path(__file__).parents[1] / "bench" / "real" / "peers.md"


def test_the_example_is_an_adapter(tmp_path: Path):
    adapter = tmp_path / "adapter.py"
    adapter.write_text(PAGE.read_text().partition("```python\n")[2].partition("```")[0])
    peer = load(adapter)
    job = peer.manifest("resnet", "ours", 4)
    assert path_of(job) == "/apis/example.com/v1/namespaces/ours/examplejobs"
    assert peer.running(job["spec"], {"runningWorkers": 4})
    assert not peer.running(job["spec"], {})
    assert peer.is_worker("resnet-worker-3")


def test_the_page_names_each_part():
    for part in PARTS:
        assert f"| `{part}" in PAGE.read_text()


def test_a_file_without_a_part_is_refused(tmp_path: Path):
    adapter = tmp_path / "adapter.py"
    adapter.write_text("NAME = 'nothing else'\n")
    with pytest.raises(AdapterError, match=r"adapter\.py: add objects, command, manifest, running, is_worker;"):
        load(adapter)


def test_a_path_without_a_file_is_refused(tmp_path: Path):
    with pytest.raises(AdapterError, match="there is no such file; give the path of an adapter"):
        load(tmp_path / "adapter.py")
