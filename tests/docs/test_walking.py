"""What the page of an installation is held to: the rules by which it is walked."""

from pathlib import Path

import pytest

from tests.kit.walking import Step, agrees, steps

PAGE = """
```console
$ kubectl get pods
NAME   READY
p      1/1
$ helm install muster \\
    --wait
```

```sh
docker build .
```

## The end

```console
$ true
```

### After it

```console
$ false
```
"""


def test_only_console_blocks_are_walked(tmp_path: Path):
    (tmp_path / "page.md").write_text(PAGE)
    assert steps(tmp_path / "page.md") == [
        Step("kubectl get pods", ("NAME   READY", "p      1/1")),
        Step("helm install muster --wait", ()),
        Step("true", ()),
        Step("false", ()),
    ]


def test_a_section_ends_with_the_next_heading(tmp_path: Path):
    (tmp_path / "page.md").write_text(PAGE)
    assert steps(tmp_path / "page.md", "The end") == [Step("true", ())]


@pytest.mark.parametrize(
    ("shown", "output", "expected"),
    [
        pytest.param(("a  b",), "a b\n", True, id="blanks do not count"),
        pytest.param(("a b",), "a c\n", False, id="another word"),
        pytest.param(("a ... c",), "a 17 s c\n", True, id="something in a line"),
        pytest.param(("a", "...", "d"), "a\nb\nc\nd\n", True, id="lines left out"),
        pytest.param(("a", "...", "d"), "a\nd\n", True, id="nothing left out"),
        pytest.param(("a",), "a\nb\n", False, id="a line more"),
        pytest.param(("a", "b"), "a\n", False, id="a line less"),
        pytest.param(("1.5",), "1x5\n", False, id="a dot is a dot"),
    ],
)
def test_output_agrees_with_what_is_shown(shown, output, expected):
    assert agrees(shown, output) is expected
