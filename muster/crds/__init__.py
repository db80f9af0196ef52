"""The CustomResourceDefinitions of our own kinds, made from pydantic models.

`models.py` and `status.py` say what the fields are, `templates.py` how little of a pod template is declared,
`structural.py` turns a model into a schema that the API server takes, `definitions.py` puts the rest around it.
`python -m muster.crds` writes `crds/`.

What is checked here is refused at apply time; `shared.frameworks.training` checks it again, because older CRDs of
these kinds let anything through.
"""

from muster.crds.definitions import manifests, render

__all__ = ["manifests", "render"]
