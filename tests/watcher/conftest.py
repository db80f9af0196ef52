"""Virtual time, and a world with all four services."""

from tests.kit.virtual_time import pytest_asyncio_loop_factories
from tests.kit.world import a_world

__all__ = ["a_world", "pytest_asyncio_loop_factories"]
