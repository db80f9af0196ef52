"""The demo on a real node: a model trains over the pods' network and the cluster's DNS, in an image of its own."""

from pathlib import Path

import pytest

from muster.demo import Demo, Teller
from tests.kit.hosts import MakeHost

pytestmark = pytest.mark.node


async def test_digits_trains_grows_shrinks_and_is_replayed(tmp_path: Path, host: MakeHost, capsys):
    assert await Demo(tmp_path, Teller(), host, keep=False, image=None).run() == 0
    said = capsys.readouterr().out
    assert "workers=4" in said
    assert "scalein/digits-in is ScaleSucceeded" in said
