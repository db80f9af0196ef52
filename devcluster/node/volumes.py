"""A pod's volumes: folders below its own, filled from ConfigMaps, Secrets and the pod itself, and kept current."""

import base64
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from devcluster.node import atomic
from devcluster.node.atomic import File
from devcluster.node.claims import claimed
from devcluster.node.environment import BadConfiguration, Fetch, expand
from devcluster.node.fields import UnknownField, field
from devcluster.node.identity import files_group
from devcluster.node.kubernetes import Json
from devcluster.node.rootfs import Mount
from devcluster.node.tokens import Tokens

DEFAULT_MODE = 0o644

_PAYLOADS = ("configMap", "secret", "downwardAPI", "projected")
"""The kinds whose files come from the API; containers may only read them."""


class MountFailed(Exception):  # noqa: N818 - the kubelet's reason is FailedMount
    """A volume cannot be set up now; the message is what the Kubernetes Event says."""


class Volumes:
    def __init__(self, pod: Callable[[], Json], folder: Path, status: Mapping[str, str], tokens: Tokens) -> None:
        """`pod` tells the newest object; `status` has the values of field references."""
        self._pod = pod
        self._folder = folder
        self._status = status
        self._tokens = tokens
        self._group = files_group(pod())
        self._specs: dict[str, Json] = {volume["name"]: volume for volume in pod()["spec"].get("volumes") or ()}
        self._elsewhere: dict[str, Path] = {}
        """Folders and files of the host, by the volumes that show them."""

    @property
    def refreshable(self) -> bool:
        return any(kind in spec for spec in self._specs.values() for kind in _PAYLOADS)

    async def set_up(self, fetch: Fetch) -> None:
        for name, spec in self._specs.items():
            try:
                await self._set_up(spec, fetch)
            except (BadConfiguration, UnknownField, OSError) as error:
                raise MountFailed(f'MountVolume.SetUp failed for volume "{name}" : {error}') from error

    async def refresh(self, fetch: Fetch) -> None:
        """Bring what the API tells up to date; what cannot be read now stays as it is.

        Everything is read before anything is written, so that folders of one object change together.
        """
        fresh: dict[str, dict[str, File]] = {}
        for name, spec in self._specs.items():
            if any(kind in spec for kind in _PAYLOADS):
                with contextlib.suppress(BadConfiguration, UnknownField):
                    fresh[name] = await self._payload(spec, fetch)
        for name, files in fresh.items():
            with contextlib.suppress(OSError):
                self._write(name, files)

    async def _set_up(self, spec: Json, fetch: Fetch) -> None:
        folder = self._folder / spec["name"]
        if any(kind in spec for kind in _PAYLOADS):
            self._write(spec["name"], await self._payload(spec, fetch))
        elif "emptyDir" in spec:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o777)
        elif "hostPath" in spec:
            _check_host_path(spec["hostPath"])
            self._elsewhere[spec["name"]] = Path(spec["hostPath"]["path"])
        elif claim := spec.get("persistentVolumeClaim"):
            self._elsewhere[spec["name"]] = await claimed(claim["claimName"], fetch, self._group)
        else:
            kinds = ", ".join(kind for kind in spec if kind != "name") or "a volume without a kind"
            raise BadConfiguration(f"{kinds} is not offered by this node")

    async def _payload(self, spec: Json, fetch: Fetch) -> dict[str, File]:
        files: dict[str, File] = {}
        if projected := spec.get("projected"):
            mode = projected.get("defaultMode", DEFAULT_MODE)
            for source in projected.get("sources") or ():
                files |= await self._source(source, mode, fetch)
            return files
        (kind,) = (kind for kind in _PAYLOADS if kind in spec)
        return await self._source(spec, spec[kind].get("defaultMode", DEFAULT_MODE), fetch)

    async def _source(self, spec: Json, mode: int, fetch: Fetch) -> dict[str, File]:
        if source := spec.get("configMap"):
            found = await fetch("configmaps", source["name"])
            return _picked(source, f'configmap "{source["name"]}"', _contents(found, encoded=False), mode)
        if source := spec.get("secret"):
            name = source.get("secretName") or source["name"]
            found = await fetch("secrets", name)
            return _picked(source, f'secret "{name}"', _contents(found, encoded=True), mode)
        if source := spec.get("downwardAPI"):
            return {
                _safe(item["path"]): File(self._field(item), item.get("mode", mode))
                for item in source.get("items") or ()
            }
        if source := spec.get("serviceAccountToken"):
            return {_safe(source["path"]): File(await self._tokens.of(source), mode)}
        raise BadConfiguration(f"{', '.join(spec)} is not offered by this node")

    def _write(self, name: str, files: Mapping[str, File]) -> None:
        if self._group is not None:
            # So that the pod's group can read also what is nobody's but the owner's.
            files = {path: file._replace(mode=file.mode | 0o440) for path, file in files.items()}
        atomic.write(self._folder / name, files, self._group)

    def _field(self, item: Json) -> bytes:
        if "fieldRef" not in item:
            raise BadConfiguration(f"{item['path']}: only field references are offered by this node")
        return field(self._pod(), self._status, item["fieldRef"]["fieldPath"]).encode()

    def mounts(self, container: Json, environment: Mapping[str, str]) -> list[Mount]:
        """What the container sees where; raises `BadConfiguration`."""
        return [self._mount(one, environment) for one in container.get("volumeMounts") or ()]

    def _mount(self, one: Json, environment: Mapping[str, str]) -> Mount:
        spec = self._specs.get(one["name"])
        if spec is None:
            raise BadConfiguration(f'no volume is named "{one["name"]}"')
        source = self._elsewhere.get(one["name"], self._folder / one["name"])
        read_only = bool(one.get("readOnly")) or any(kind in spec for kind in _PAYLOADS)
        if inside := one.get("subPath") or expand(one.get("subPathExpr") or "", environment):
            source = _sub_path(source, inside)
        target = str(PurePosixPath("/") / one["mountPath"])
        return {"source": str(source), "target": target, "read_only": read_only}


def _sub_path(volume: Path, inside: str) -> Path:
    """The file or folder itself, behind all links: the container keeps it even when the volume changes."""
    if PurePosixPath(inside).is_absolute() or ".." in PurePosixPath(inside).parts:
        raise BadConfiguration(f"subPath {inside} leaves its volume")
    path = volume / inside
    if not path.exists():
        path.mkdir(parents=True)
        path.chmod(0o777)
    resolved = path.resolve()
    if not resolved.is_relative_to(volume.resolve()):
        raise BadConfiguration(f"subPath {inside} leaves its volume")
    return resolved


def _contents(found: Json | None, *, encoded: bool) -> dict[str, bytes] | None:
    if found is None:
        return None
    texts, binaries = found.get("data") or {}, found.get("binaryData") or {}
    if encoded:
        texts, binaries = {}, texts
    contents = {name: text.encode() for name, text in texts.items()}
    return contents | {name: base64.b64decode(text) for name, text in binaries.items()}


def _picked(source: Json, what: str, contents: dict[str, bytes] | None, mode: int) -> dict[str, File]:
    if contents is None:
        if source.get("optional"):
            return {}
        raise BadConfiguration(f"{what} not found")
    if not source.get("items"):
        return {_safe(name): File(content, mode) for name, content in contents.items()}
    files = {}
    for item in source["items"]:
        if item["key"] in contents:
            files[_safe(item["path"])] = File(contents[item["key"]], item.get("mode", mode))
        elif not source.get("optional"):
            raise BadConfiguration(f"{what} references non-existent config key: {item['key']}")
    return files


def _safe(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or any(part.startswith("..") for part in parts):
        raise BadConfiguration(f"the path {path!r} leaves its volume")
    return "/".join(parts)


def _check_host_path(source: Json) -> None:
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch()
    elif kind == "Directory" and not path.is_dir():
        raise BadConfiguration(f"hostPath type check failed: {path} is not a directory")
    elif not path.exists():
        raise BadConfiguration(f"hostPath {path} does not exist")
