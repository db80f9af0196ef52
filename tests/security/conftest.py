import pytest

LAST = "test_the_roles_are_what_all_end_to_end_tests_needed"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What speaks of all recordings of the session comes after everything that records."""
    items.sort(key=lambda item: item.name == LAST)
