"""The examples of `docs/client.md`, in order and each as a program of its own, with the installed wheel alone."""

import re
import subprocess
import sys
import venv
from collections.abc import AsyncIterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.cluster import Devcluster
from tests.kit.commands import Ended, run
from tests.kit.operator import Operator, an_operator

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "client.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LINKED = ("steer.py", "follow.py", "trouble.py", "logs.py")
PROGRAMS += [(ROOT / "examples" / "client" / name).read_text() for name in LINKED]
"""Those of the page and its links."""
PLOT = "examples/digits/plot.py"
LONGEST_SECONDS = 240.0

SAYS = (
    r"^pytorchjob/group Running 3/3\n\S+ Created [\d.]+\n\S+ Running [\d.]+\n(\S+ .*\n)*\S+ Running None$",
    r"^Suspended\n\s*\d+ .*",
    r"^\d+ \S+ pods in 1 roles\n(.*\n)*\d+ \S+ it runs$",
    r"^it goes on: waited 2 s for pytorchjob/group: it is Running",
    r"^digits-\w+-launcher epoch=\d+.*",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel, and what the image installs: the wheel's own dependencies and no others."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    for name in re.findall(r"^([\w.-]+)==", (ROOT / "deploy/image/requirements.lock").read_text(), re.MULTILINE):
        brought(name, packages)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", packages, wheel]
    subprocess.run(install, check=True)
    return python


def brought(name: str, packages: Path) -> None:
    """Link the files of a package that is installed here."""
    try:
        found = distribution(name)
    except ModuleNotFoundError:
        # Of another system, such as `colorama`.
        return
    for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (packages / top).exists():
            (packages / top).symlink_to(Path(str(found.locate_file(top))))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    async with an_operator(tmp_path_factory.mktemp("stack"), Devcluster) as operator:
        yield operator


async def ran(operator: Operator, python: Path, *words: str) -> Ended:
    """A program of a user with a password at NATS, whose files are not ours."""
    return await run(
        str(python), "-I", *words, environment={**operator.stack.reader(), "PYTHONPATH": ""}, patience=LONGEST_SECONDS
    )


async def test_the_installed_wheel_trains_and_plots(operator: Operator, python: Path):
    ended = await ran(operator, python, str(ROOT / PLOT))
    assert (ended.code, ended.complaint) == (0, "")
    bars = [line.split() for line in ended.out.splitlines()]
    assert [bar for _, bar in bars] == ["#" * 4, "#" * 8, "JobSucceeded"]


async def test_the_plot_is_ten_lines():
    _, connect, code = (ROOT / PLOT).read_text().partition("with muster.client")
    assert len(f"{connect}{code}".splitlines()) == 10
    assert PLOT in PAGE


@pytest.mark.parametrize(("program", "says"), [*zip(PROGRAMS, SAYS, strict=True)])
async def test_a_program_of_the_page_works(
    operator: Operator, python: Path, program: str, says: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ROOT)
    ended = await ran(operator, python, "-c", program)
    assert (ended.code, ended.complaint) == (0, "")
    assert re.search(says, ended.out), ended.out


async def test_a_user_s_type_checker_knows_the_client(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Where the packages are not those of the checkout.
    monkeypatch.chdir(tmp_path)
    for number, program in enumerate(PROGRAMS):
        # A function without annotations is not checked.
        (tmp_path / f"program{number}.py").write_text(program.replace("def main():", "def main() -> None:"))
    wrong = "import muster.client.sync\nmuster.client.sync.connect().scale('a', 'b', to='three')\n"
    (tmp_path / "wrong.py").write_text(wrong)
    check = ("-m", "mypy", "--strict", "--python-executable", str(python))
    checked = await run(sys.executable, *check, ".", patience=LONGEST_SECONDS)
    assert re.findall(r"(\w+\.py):(\d+): error: (.*)$", checked.out, re.MULTILINE) == [
        ("wrong.py", "2", 'Argument "to" has incompatible type "str"; expected "int"  [arg-type]')
    ], checked


async def test_the_wheel_brings_no_more_than_it_names(python: Path):
    ended = await run(str(python), "-I", "-c", "import muster.client, numpy")
    assert "No module named 'numpy'" in ended.complaint
