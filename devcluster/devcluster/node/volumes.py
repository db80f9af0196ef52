"""A pod's volumes: folders below the pod's, with files from ConfigMaps, Secrets and the pod itself, kept up to date.

The volume of a claim is a folder of this machine, which outlives the pod.
"""

import base64
import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from devcluster.client import Json, Kubernetes, Trouble, path_of
from devcluster.node.environment import BadConfiguration, Fetch, expand, field, files_group
from devcluster.node.rootfs import Mount

DEFAULT_MODE = 0o644
DATA = "..data"

_PAYLOADS = ("configMap", "secret", "downwardAPI", "projected")
"""The kinds of volumes whose files come from the API; they are read-only for containers."""


class File(NamedTuple):
    content: bytes
    mode: int


class MountFailed(Exception):  # noqa: N818 - the kubelet's reason is FailedMount
    """A volume cannot be set up now; the message is that of the Kubernetes Event."""


RENEWED_AFTER = 0.8
"""The part of a token's lifetime after which it is renewed, as with the kubelet."""

DEFAULT_SECONDS = 3600


class Tokens:
    def __init__(self, api: Kubernetes, pod: Callable[[], Json]) -> None:
        self._api = api
        self._pod = pod
        self._known: dict[str, tuple[str, float]] = {}
        """Token and the time of its renewal, by audience."""

    async def of(self, source: Json) -> bytes:
        """The token of a `serviceAccountToken` of a projected volume; raises `BadConfiguration`."""
        audience = source.get("audience", "")
        token, until = self._known.get(audience, ("", 0.0))
        if time.monotonic() >= until:
            seconds = source.get("expirationSeconds", DEFAULT_SECONDS)
            token = await self._request(audience, seconds)
            self._known[audience] = token, time.monotonic() + RENEWED_AFTER * seconds
        return token.encode()

    async def _request(self, audience: str, seconds: int) -> str:
        metadata, account = self._pod()["metadata"], self._pod()["spec"].get("serviceAccountName", "default")
        pod = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {"expirationSeconds": seconds, "boundObjectRef": pod, "audiences": [audience] if audience else []}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = path_of("serviceaccounts", metadata["namespace"], account, "token")
        try:
            answer = await self._api.call("POST", path, request)
        except Trouble as trouble:
            raise BadConfiguration(f'no token for the service account "{account}": {trouble}') from trouble
        return str(answer["status"]["token"])


class Volumes:
    def __init__(self, pod: Callable[[], Json], folder: Path, status: Mapping[str, str], tokens: Tokens) -> None:
        """`pod` returns the newest object; `status` has the values of field references."""
        self._pod = pod
        self._folder = folder
        self._status = status
        self._tokens = tokens
        self._group = files_group(pod())
        self._specs: dict[str, Json] = {volume["name"]: volume for volume in pod()["spec"].get("volumes") or ()}
        self._elsewhere: dict[str, Path] = {}
        """Folders and files of the host, by the name of their volume."""

    @property
    def refreshable(self) -> bool:
        return any(kind in spec for spec in self._specs.values() for kind in _PAYLOADS)

    async def set_up(self, fetch: Fetch) -> None:
        for name, spec in self._specs.items():
            try:
                await self._set_up(spec, fetch)
            except (BadConfiguration, OSError) as error:
                raise MountFailed(f'MountVolume.SetUp failed for volume "{name}" : {error}') from error

    async def refresh(self, fetch: Fetch) -> None:
        """Update the files that come from the API; those of an object that cannot be read stay.

        All objects are read before a file is written, so that folders of one object change together.
        """
        fresh: dict[str, dict[str, File]] = {}
        for name, spec in self._specs.items():
            if any(kind in spec for kind in _PAYLOADS):
                with contextlib.suppress(BadConfiguration):
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
            # As with the kubelet, the pod's group may read every file, even one for its owner only.
            files = {path: file._replace(mode=file.mode | 0o440) for path, file in files.items()}
        write(self._folder / name, files, self._group)

    def _field(self, item: Json) -> bytes:
        if "fieldRef" not in item:
            raise BadConfiguration(f"{item['path']}: only field references are offered by this node")
        return field(self._pod(), self._status, item["fieldRef"]["fieldPath"]).encode()

    def mounts(self, container: Json, environment: Mapping[str, str]) -> list[Mount]:
        """The mounts of a container; raises `BadConfiguration`."""
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
    """The file or folder with all links resolved: the container keeps it even when the volume changes."""
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


CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"


async def claimed(name: str, fetch: Fetch, group: int | None) -> Path:
    """The folder of a claim's volume; raises `BadConfiguration` until it is bound."""
    claim = await fetch(CLAIMS, name)
    if claim is None:
        raise BadConfiguration(f'persistentvolumeclaim "{name}" not found')
    volume_name = claim["spec"].get("volumeName")
    if not volume_name or (claim.get("status") or {}).get("phase") != "Bound":
        raise BadConfiguration(f'persistentvolumeclaim "{name}" is not bound')
    volume = await fetch(VOLUMES, volume_name)
    if volume is None:
        raise BadConfiguration(f'persistentvolume "{volume_name}" not found')
    source = volume["spec"].get("local") or volume["spec"].get("hostPath")
    if not source:
        raise BadConfiguration(f'persistentvolume "{volume_name}": only local and hostPath are offered by this node')
    return _opened(volume_name, Path(source["path"]), group if "local" in volume["spec"] else None)


def _opened(volume: str, folder: Path, group: int | None) -> Path:
    """The folder of a volume, made writable for the pod's group."""
    if not folder.is_dir():
        raise BadConfiguration(f'persistentvolume "{volume}": {folder} is not a directory')
    if group is not None:
        os.chown(folder, -1, group)
        # New files in it get the group, too.
        folder.chmod(folder.stat().st_mode | 0o2770)
    return folder


def write(folder: Path, files: Mapping[str, File], group: int | None = None) -> bool:
    """Make `folder` show exactly these files, by relative path, owned by this group; return True if a file changed.

    All change at once, as with the kubelet: a reader sees the whole old version or the whole new one.

    folder/..2026_01_02_03_04_05.8zx1/hosts     the files
    folder/..data -> ..2026_01_02_03_04_05.8zx1  swapped by one rename
    folder/hosts -> ..data/hosts
    """
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / DATA
    before = folder / link.readlink() if link.is_symlink() else None
    if before is not None and _read(before) == files:
        return False
    version = folder / f"..{time.strftime('%Y_%m_%d_%H_%M_%S')}.{secrets.token_hex(4)}"
    version.mkdir(mode=0o755)
    for path, file in files.items():
        target = version / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        if group is not None:
            os.chown(target, -1, group)
        target.chmod(file.mode)
    new = folder / f"{DATA}_tmp"
    new.unlink(missing_ok=True)
    new.symlink_to(version.name)
    new.rename(link)
    _show(folder, {path.partition("/")[0] for path in files})
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)
    return True


def _read(version: Path) -> dict[str, File]:
    return {
        str(path.relative_to(version)): File(path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in version.rglob("*")
        if path.is_file()
    }


def _show(folder: Path, names: set[str]) -> None:
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA}/{name}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
