"""What a package of one's own needs to bring another framework: everything that `docs/frameworks.md` uses.

A package names its framework in the entry-point group `muster.frameworks`; every process of Muster that finds the
package beside it takes on jobs of that kind.
"""

from shared.frameworks.framework import Definition, Document, Framework, Place, Scale, Version
from shared.frameworks.kubeflow import KubeflowJob
from shared.frameworks.reading import Fields
from shared.frameworks.replicated import ContainerProperties, Replica, Replicated, ReplicaType
from shared.job.spec import Handling, JobSpec, Problem, RoleSpec

__all__ = [
    "ContainerProperties",
    "Definition",
    "Document",
    "Fields",
    "Framework",
    "Handling",
    "JobSpec",
    "KubeflowJob",
    "Place",
    "Problem",
    "Replica",
    "ReplicaType",
    "Replicated",
    "RoleSpec",
    "Scale",
    "Version",
]
