"""The names that a user's package with a framework needs: everything that `docs/frameworks.md` uses.

A package names its framework in the entry-point group `muster.frameworks`; every process of Muster with the package
installed acts on jobs of that kind.
"""

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework, PodContext
from shared.frameworks.kubeflow import KubeflowJob, OfTrainingOperator
from shared.frameworks.mpba import MpbaJob
from shared.frameworks.reading import Fields
from shared.frameworks.replicated import ContainerProperties, Replica, Replicated, ReplicaType
from shared.frameworks.schemas import Definition, Document, Scale, Version
from shared.frameworks.takeover import TakeOver
from shared.job.naming import JobKey, Slot
from shared.job.spec import LAUNCHED, LAUNCHED_TOGETHER, REPLICATED, Handling, JobSpec, Problem, RoleSpec
from shared.job.state import Job

__all__ = [
    "LAUNCHED",
    "LAUNCHED_TOGETHER",
    "REPLICATED",
    "ContainerProperties",
    "Custom",
    "Definition",
    "Document",
    "Fields",
    "Framework",
    "Handling",
    "Job",
    "JobKey",
    "JobSpec",
    "KubeflowJob",
    "MpbaJob",
    "OfTrainingOperator",
    "PodContext",
    "Problem",
    "Replica",
    "ReplicaType",
    "Replicated",
    "Resource",
    "RoleSpec",
    "Scale",
    "Slot",
    "TakeOver",
    "Version",
]
