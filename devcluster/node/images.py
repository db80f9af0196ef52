"""Images on a node without a container runtime: a name maps to a folder of the host."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MISSING = "missing/"
"""The prefix of names that cannot be pulled, for tests of a failing pull."""

ENVIRONMENT = ".venv"
"""The virtual environment in an image's folder, or a link to one: its programs come first on the PATH."""


@dataclass(frozen=True)
class Images:
    """The folders of the images: an image has no file system, only the folder in which its containers start."""

    folders: Mapping[str, Path]
    """The folder of each image, by name without tag."""

    def folder(self, image: str) -> str:
        found = self.folders.get(without_tag(image))
        return str(found) if found else "/"

    def visible(self, image: str) -> list[str]:
        """The folders of the host that containers of the image must see."""
        found = self.folders.get(without_tag(image))
        if found is None:
            return []
        environment = found / ENVIRONMENT
        # The targets of the links: the environment, and the Python that made it.
        behind = {environment.resolve(), (environment / "bin" / "python").resolve().parents[1]}
        return [str(found), *(str(folder) for folder in sorted(behind) if environment.exists())]

    def programs(self, image: str) -> list[str]:
        """The folders of the image's programs, first on the PATH."""
        found = self.folders.get(without_tag(image))
        return [str(found / ENVIRONMENT / "bin")] if found and (found / ENVIRONMENT).exists() else []

    @staticmethod
    def missing(image: str) -> bool:
        return image.startswith(MISSING)


def without_tag(image: str) -> str:
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    # A colon before the last slash separates a registry's port, not a tag.
    return folder + slash + last.partition(":")[0]
