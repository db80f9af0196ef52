"""The CustomResourceDefinitions of all kinds, made from the frameworks' `definition`s.

`definitions.py` makes them, `compare.py` compares an installed one with this release's.  `python -m muster.crds` writes
`crds/`.  A kind's `parse` checks again what its definition checks, because older definitions accept anything.
"""

from muster.crds.definitions import manifests, render

__all__ = ["manifests", "render"]
