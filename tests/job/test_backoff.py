import ast
from pathlib import Path

from shared.backoff import Backoff, doubled
from shared.job.policies.retries import before_effect, before_start

ROOT = Path(__file__).parents[2]
PRODUCT = [file for top in ("services", "shared", "muster") for file in (ROOT / top).rglob("*.py")]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0


def a_backoff(clock: Clock, *, random: float = 1.0) -> Backoff:
    return Backoff(first=0.8, longest=30.0, clock=lambda: clock.now, random=lambda: random)


def test_waits_double_up_to_the_longest() -> None:
    backoff = a_backoff(Clock())
    assert [backoff.next() for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_chance_may_shorten_a_wait_to_nothing() -> None:
    assert a_backoff(Clock(), random=0.0).next() == 0.0


def test_what_the_server_asks_for_is_the_least() -> None:
    backoff = a_backoff(Clock(), random=0.5)
    assert backoff.next(retry_after=10.0) == 10.4


def test_two_good_minutes_make_the_next_failure_a_first_one() -> None:
    clock = Clock()
    backoff = a_backoff(clock)
    backoff.next()
    clock.now = 119.0
    assert backoff.next() == 1.6
    clock.now = 240.0
    assert backoff.next() == 0.8


def test_a_timer_waits_whole_seconds_and_not_at_all_without_a_failure() -> None:
    assert [doubled(10, failures, 300) for failures in (0, 1, 2, 6, 10**9)] == [0, 10, 20, 300, 300]


def test_starts_wait_for_five_minutes_at_most_and_refused_effects_for_one() -> None:
    assert [before_start(failures) for failures in (0, 1, 2, 3, 6, 1_000_000)] == [0, 10, 20, 40, 300, 300]
    assert [before_effect(refusals) for refusals in (1, 2, 3, 4, 6, 7, 1_000_000)] == [1, 2, 4, 8, 32, 60, 60]


def test_no_other_file_doubles_a_wait() -> None:
    others = [file for file in PRODUCT if file != ROOT / "shared/backoff.py"]
    texts = {file: text for file in others if "min(" in (text := file.read_text())}
    assert [str(file) for file, text in texts.items() for node in ast.walk(ast.parse(text)) if doubles(node)] == []


def doubles(node: ast.AST) -> bool:
    """True for `min(2 * wait, longest)` and its like."""
    limited = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "min"
    return limited and any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Mult | ast.Pow)
        and any(isinstance(factor, ast.Constant) and factor.value == 2 for factor in (part.left, part.right))
        for part in ast.walk(node)
    )
