"""The CustomResourceDefinitions of all kinds: what the frameworks say of theirs, put together.

`definitions.py` makes them, `compare.py` holds an installed one against ours.  `python -m muster.crds` writes `crds/`.
What a definition refuses at apply time, the kind's `parse` refuses again: older definitions let anything through.
"""

from muster.crds.definitions import manifests, render

__all__ = ["manifests", "render"]
