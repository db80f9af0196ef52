"""Jobs of replicas: pods of several types that start together and find each other by their environment.  Pure.

Most frameworks have this shape.  A subclass has its kind (`job_type`), its types (`replica_types`), the name and the
port of its container (`container_properties`), and the environment of each pod (`environment`).
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import msgspec

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks import reading
from shared.frameworks.framework import Framework, PodContext, key_of, slot_labels
from shared.frameworks.pods import pod_of
from shared.frameworks.schemas import Document
from shared.frameworks.templates import Promises, check_variables, training_container
from shared.job.naming import Slot, pod_name
from shared.job.spec import REPLICATED, UNLIMITED, Handling, JobSpec, Problem, RestartPolicy, RoleSpec


class ReplicaType(NamedTuple):
    name: str
    """The name as users write it; the role is the same in lower case."""
    least: int = 0
    """The least number of them in a job."""
    most: int = reading.MOST_WORKERS
    replicas: int = 1
    restart_policy: RestartPolicy = "Never"
    """When the job does not say."""

    @property
    def role(self) -> str:
        return self.name.lower()


class ContainerProperties(NamedTuple):
    """The name, the port and the mounts of a framework's training container."""

    name: str = ""
    """Empty means the first container."""
    port_name: str = ""
    port: int = 0
    """The port unless the container has a port of that name; 0 if it has none."""
    mount_paths: Mapping[str, str] = MappingProxyType({})
    """Names of volumes → where they are mounted, unless the container mounts another volume there.

    A volume that the pod template lacks is an empty directory of the pod's.
    """


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a job, and the values that its environment may use."""

    job: Custom
    spec: JobSpec
    context: PodContext
    ports: Mapping[str, int]

    @property
    def role(self) -> str:
        return self.context.slot.role

    @property
    def index(self) -> int:
        return self.context.slot.index

    def size(self, role: str) -> int:
        """The number of pods of that role in this attempt; 0 without such a role, also if an edit took it away."""
        return self.context.sizes.get(role, 0) if any(known.name == role for known in self.spec.roles) else 0

    def host(self, role: str, index: int = 0) -> str:
        """The host name of that pod, which every pod of the job resolves."""
        return next(f"{known.stem}{index}" for known in self.spec.roles if known.name == role)

    def hosts(self, role: str) -> list[str]:
        """The addresses of a role's pods, `name:port` each, by index."""
        return [f"{self.host(role, index)}:{self.ports[role]}" for index in range(self.size(role))]


class Replicated(Framework):
    job_type: ClassVar[str]
    group: ClassVar[str]
    version: ClassVar[str]
    plural: ClassVar[str] = ""
    """Empty means the kind in lower case with an s."""
    replica_types: ClassVar[tuple[ReplicaType, ...]]
    replica_specs: ClassVar[str] = "replicaSpecs"
    """The field of `spec` with the replicas by type."""
    container_properties: ClassVar[ContainerProperties] = ContainerProperties()
    handling: ClassVar[Handling] = REPLICATED
    reserved: ClassVar[frozenset[str]] = frozenset()
    """Environment variables that a user must not set: the pods would not find each other.

    The user's own value of any other variable wins.
    """

    leading_digit: ClassVar[bool] = False
    """True if a job's name may begin with a digit: the names of its pods do not begin with it."""
    counted: ClassVar[int] = reading.LONGEST_POD_NAME
    """The most characters of a job's name in the names of its pods."""
    in_every_container: ClassVar[bool] = False
    """True if side containers get the variables, too."""

    @property
    def resource(self) -> Resource[Custom]:  # type: ignore[override]
        return Resource(self.group, self.version, self.plural or f"{self.job_type.lower()}s", self.job_type, Custom)

    @abstractmethod
    def environment(self, replica: Replica) -> Mapping[str, str]:
        """The variables by which a pod finds its rank and the others."""

    def reserved_for(self, spec: reading.Fields) -> frozenset[str]:
        """The variables that the user of a job with this spec must not set."""
        return self.reserved

    def stem(self, manifest: Custom, kind: ReplicaType) -> str:
        """The names of a type's pods without the index."""
        return f"{manifest.metadata.name}-{kind.role}-"

    def replicas(self, spec: reading.Fields) -> Iterator[tuple[ReplicaType, reading.Fields]]:
        """The types of a job, each once, with their fields; users write them in upper or lower case."""
        specs = spec.part(self.replica_specs)
        if not specs.names():
            spec.refuse("NoReplicas", f"say which replicas the job has: {self._choices()}", self.replica_specs)
        known = {kind.role: kind for kind in self.replica_types}
        found: dict[ReplicaType, reading.Fields] = {}
        for name in specs.names():
            kind = known.get(name.lower())
            if kind is None:
                specs.refuse("UnknownReplicaType", f"the types of this kind are {self._choices()}")
            elif kind in found:
                specs.refuse("DuplicateReplicaType", f"write {kind.name} once")
            else:
                found[kind] = specs.part(name)
        yield from ((kind, found[kind]) for kind in self.replica_types if kind in found)

    def root(self, manifest: Custom, problems: list[Problem]) -> reading.Fields:
        """The spec; all objects read from it note their problems in one list."""
        return reading.Fields(manifest.spec, "spec", problems)

    def restart_policy(self, kind: ReplicaType, fields: reading.Fields) -> RestartPolicy:
        return fields.choice(
            "restartPolicy", reading.RESTART_POLICIES, kind.restart_policy, reason="UnknownRestartPolicy"
        )

    def promises(self, manifest: Custom, kind: ReplicaType, fields: reading.Fields) -> Promises:
        """What Muster puts into the pods of a type, which their template must leave free."""
        return Promises(labels=slot_labels(self, key_of(manifest), Slot(0, kind.role, 0)))

    def container(self, spec: reading.Fields, kind: ReplicaType) -> str:
        """The name of a type's training container; empty means the first container."""
        return self.container_properties.name

    def entry(self, manifest: Custom, role: str) -> tuple[str, Document]:
        """The path of the fields of a role, and these, in a resource that `parse` accepted."""
        field = self.replica_specs
        specs = ((name, fields) for name, fields in manifest.spec[field].items() if fields and name.lower() == role)
        return next((f"spec.{field}.{name}", fields) for name, fields in specs)

    def template(self, manifest: Custom, role: str) -> Document:
        found: Document = self.entry(manifest, role)[1]["template"]
        return found

    def template_path(self, manifest: Custom, role: str) -> str:
        return f"{self.entry(manifest, role)[0]}.template"

    def training_container(self, manifest: Custom, role: str) -> Document:
        """The container of a role's template that `parse` found; empty if an edit took it away.

        Services are made of an edited resource, too, before `parse` accepts it.
        """
        name = self.container_properties.name
        containers: list[Document] = self.template(manifest, role)["spec"]["containers"]
        return next((known for known in containers if name in ("", known["name"])), {})

    def spec_of(self, manifest: Custom, spec: reading.Fields, roles: tuple[RoleSpec, ...]) -> JobSpec:
        """The canonical job with these roles; problems are noted in `spec`."""
        return JobSpec(
            framework=self.name,
            roles=roles,
            handling=self.handling,
            attach_mode="",
            backoff_limit=UNLIMITED,
            restart=reading.restart_of(manifest.metadata.annotations),
        )

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        problems: list[Problem] = []
        spec = self.root(manifest, problems)
        found = [*self.replicas(spec)]
        reserved = self.reserved_for(spec)
        roles = tuple(
            self._role(manifest, kind, fields, self.container(spec, kind), reserved) for kind, fields in found
        )
        for kind in self.replica_types:
            if kind.least and kind.role not in {role.name for role in roles}:
                spec.refuse("NoReplicas", f"add {kind.least} {kind.name}", self.replica_specs)
        if found and not any(role.replicas for role in roles):
            spec.refuse("NoReplicas", "ask for at least one pod", self.replica_specs)
        parsed = self.spec_of(manifest, spec, roles)
        leader = parsed.handling.leader
        if not problems and not any(role.replicas for role in parsed.roles if role.name == leader):
            spec.refuse("NoReplicas", f"ask for at least one {leader}: the job ends with it", self.replica_specs)
        self._check_names(manifest, parsed.roles, problems)
        ignored = tuple(spec.without_effect)
        return tuple(dict.fromkeys(problems)) or msgspec.structs.replace(parsed, ignored=ignored)

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        pod = pod_of(self, self.template(manifest, context.slot.role), context, search=False)
        ports = {role.name: self.port(manifest, role.name) for role in spec.roles}
        wanted = self.environment(Replica(job=manifest, spec=spec, context=context, ports=ports))
        name = self.training_container(manifest, context.slot.role)["name"]
        pod["spec"]["containers"] = [
            self._with_environment(container, wanted, ports[context.slot.role] if container["name"] == name else 0)
            if container["name"] == name or self.in_every_container
            else container
            for container in pod["spec"]["containers"]
        ]
        for volume, path in self.container_properties.mount_paths.items():
            pod["spec"] |= _mounted(pod["spec"], volume, path, name)
        return pod

    def ports(self, manifest: Custom, spec: JobSpec, context: PodContext | None) -> list[Document]:
        properties = self.container_properties
        if context is None or not properties.port:
            return []
        return [{"name": properties.port_name, "port": self.port(manifest, context.slot.role)}]

    def port(self, manifest: Custom, role: str) -> int:
        """The port of a role's pods; 0 if they have none."""
        properties = self.container_properties
        for port in self.training_container(manifest, role).get("ports") or ():
            if port.get("name") == properties.port_name and isinstance(port.get("containerPort"), int):
                return int(port["containerPort"])
        return properties.port

    def _role(
        self, manifest: Custom, kind: ReplicaType, fields: reading.Fields, called: str, reserved: frozenset[str]
    ) -> RoleSpec:
        replicas = fields.integer("replicas", least=kind.least, most=kind.most)
        said = "" if called == self.container_properties.name else "as the spec says"
        container = training_container(fields, called, said, self.promises(manifest, kind, fields))
        if container is not None:
            for port in container.parts("ports"):
                port.integer("containerPort", least=1, most=reading.MOST_PORT)
                if not port.has("containerPort"):
                    port.refuse("NoPort", "say which port it is", "containerPort")
            others = fields.part("template").part("spec").parts("containers") if self.in_every_container else []
            for other in others:
                check_variables(other.parts("env"))
            check_variables(container.parts("env"), reserved)
        name = container.raw("name") if container is not None else ""
        return RoleSpec(
            name=kind.role,
            replicas=kind.replicas if replicas is None else replicas,
            min_replicas=0,
            restart_policy=self.restart_policy(kind, fields),
            container=name if isinstance(name, str) else "",
            stem=self.stem(manifest, kind),
        )

    def _check_names(self, manifest: Custom, roles: tuple[RoleSpec, ...], problems: list[Problem]) -> None:
        name = manifest.metadata.name
        most = [(role, max(role.replicas, role.max_replicas or 1) - 1) for role in roles]
        pods = [
            f"{role.stem}{index}" if role.stem else pod_name(name, Slot(0, role.name, index)) for role, index in most
        ]
        longest = max(map(len, pods), default=0)
        excess = longest - reading.LONGEST_POD_NAME
        allowed = max(min(len(name), self.counted) - excess, 0) if excess > 0 else None
        reading.check_job_name(name, problems.append, most=allowed, digit=self.leading_digit)

    def _choices(self) -> str:
        return ", ".join(kind.name for kind in self.replica_types)

    def _with_environment(self, container: Document, wanted: Mapping[str, str], port: int) -> Document:
        theirs = container.get("env") or []
        named = {variable.get("name") for variable in theirs}
        if wrong := [name for name, value in wanted.items() if not isinstance(value, str)]:
            raise TypeError(f"{self.name}: the values of {', '.join(wrong)} are no strings")
        # Muster's variables come first, because the user's may refer to them.
        ours = [{"name": name, "value": value} for name, value in wanted.items() if name not in named]
        properties = self.container_properties
        ports: list[Any] = container.get("ports") or []
        # In the node's network a pod may have each port once.
        if port and not any(
            known.get("name") == properties.port_name or known.get("containerPort") == port for known in ports
        ):
            ports = [*ports, {"name": properties.port_name, "containerPort": port}]
        return container | {"env": [*ours, *theirs]} | ({"ports": ports} if ports else {})


def _mounted(spec: Document, volume: str, path: str, name: str) -> Document:
    """The containers and volumes of a pod whose container of that name mounts a volume at a path."""
    volumes: list[Any] = spec.get("volumes") or []
    if not any(known.get("name") == volume for known in volumes):
        volumes = [*volumes, {"name": volume, "emptyDir": {}}]

    def mounting(container: Document) -> Document:
        mounts: list[Any] = container.get("volumeMounts") or []
        if container["name"] != name or any(mount.get("mountPath") == path for mount in mounts):
            return container
        return container | {"volumeMounts": [*mounts, {"name": volume, "mountPath": path}]}

    return {"containers": [mounting(container) for container in spec["containers"]], "volumes": volumes}
