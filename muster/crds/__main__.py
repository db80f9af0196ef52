"""Write the CustomResourceDefinitions: `python -m muster.crds [folder]`, by default into `crds/`."""

import sys
from pathlib import Path

from muster.crds import render


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "crds")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
