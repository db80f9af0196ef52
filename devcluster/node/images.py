"""What the name of an image means on a node without a container runtime."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MISSING = "missing/"
"""Images whose names begin so cannot be pulled, which is what tests of that trouble need."""

ENVIRONMENT = ".venv"
"""In the folder of an image, or a link to one: what the image would have installed, whose programs come first."""


@dataclass(frozen=True)
class Images:
    """What the name of an image means here: no file system, only the folder in which its containers start."""

    folders: Mapping[str, Path]
    """By name without tag."""

    def folder(self, image: str) -> str:
        found = self.folders.get(without_tag(image))
        return str(found) if found else "/"

    def visible(self, image: str) -> list[str]:
        """The folders that containers of the image must see, wherever on the host they are."""
        found = self.folders.get(without_tag(image))
        if found is None:
            return []
        environment = found / ENVIRONMENT
        # What is behind the links: the environment, and the Python that it was made of.
        behind = {environment.resolve(), (environment / "bin" / "python").resolve().parents[1]}
        return [str(found), *(str(folder) for folder in sorted(behind) if environment.exists())]

    def programs(self, image: str) -> list[str]:
        """Folders of programs that come before all others."""
        found = self.folders.get(without_tag(image))
        return [str(found / ENVIRONMENT / "bin")] if found and (found / ENVIRONMENT).exists() else []

    @staticmethod
    def missing(image: str) -> bool:
        return image.startswith(MISSING)


def without_tag(image: str) -> str:
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    # Only after the last slash is a colon a tag; before it, it is a registry's port.
    return folder + slash + last.partition(":")[0]
