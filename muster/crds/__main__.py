"""Write the CustomResourceDefinitions into `crds/`: `make crds`."""

from pathlib import Path

from muster.crds import render


def main() -> None:
    for name, text in render().items():
        (Path("crds") / name).write_text(text)


if __name__ == "__main__":
    main()
