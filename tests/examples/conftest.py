import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.examples.yard import Yard


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    if sys.platform != "linux":
        pytest.skip("only Linux answers on every address that begins with 127")
    yard = Yard(tmp_path)
    yield yard
    await yard.end()
