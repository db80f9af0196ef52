"""Finds the cluster and its credentials; the only file that uses the official Kubernetes client.

The client takes about 20 MiB, and is imported only when a cluster is looked for.
"""

import asyncio
import base64
import json
import os
import shutil
import signal
import ssl
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import msgspec
import structlog

from shared.cluster.calls import Access
from shared.cluster.connections import AbruptResponse, kept_alive, must_have_upgraded
from shared.cluster.kubeconfig import current_context, namespace_of, unusable
from shared.errors import Refused, Transient
from shared.untrusted import MALFORMED

HOME_KUBECONFIG = "~/.kube/config"
IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"

EXPIRY_MARGIN = timedelta(minutes=5)
"""A credential plugin is run again this long before its token expires."""

PLUGIN_PAUSE_SECONDS = 60.0
"""A credential plugin is not run again sooner than this."""

PLUGIN_SECONDS = 60.0
"""A credential plugin that no person can see and that has not ended by then is ended."""

RENEWAL_SECONDS = 3.0
"""A call waits so long for new credentials, so that the look that decides on readiness hears why there are none."""

SILENT = "does not answer; run it by hand: it may wait for a login, or for a server that is away"

RENEWAL_PAUSE_SECONDS = 1.0
"""Rejected credentials are not read again sooner than this."""

READ_BUFFER_BYTES = 2 * 1024 * 1024
"""A watch event is one line, as long as its object; aiohttp refuses a line that is longer than its buffer."""

INLINED = ("certificate-authority", "client-certificate", "client-key")
"""The fields whose content a kubeconfig may hold itself, base64-encoded, as `<field>-data`."""

TOLD = (
    *("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url"),
    "disable-compression",
)
"""The fields of a cluster that a credential plugin is told of if it asks for them."""
TOLD_MORE = "client.authentication.k8s.io/exec"
"""The extension of a cluster that is for its plugin."""

log = structlog.get_logger()

MISSING = "no Kubernetes cluster is configured: give a kubeconfig, or set KUBECONFIG, or write ~/.kube/config"


async def find_cluster(kubeconfig: Path | None, context: str = "", *, anonymous: bool = False) -> Access:
    """The cluster that kubectl would use here; `kubeconfig` takes precedence, and `context` over the current one.

    An `anonymous` one has no user's credentials, whatever the kubeconfig names when it is read again.

    Raises `Refused` with reason `NoCluster` or `BadKubeconfig`, `Transient` when a credential plugin fails.
    """
    if named := _named(kubeconfig):
        found = _files(named)
        if not found:
            raise Refused(f"there is no kubeconfig at {', '.join(named)}", reason="NoCluster")
        return await _KubeconfigAccess.load(found, context, anonymous)
    if os.environ.get(IN_CLUSTER) and not context:
        return _PodAccess(_new_configuration())
    found = _files([HOME_KUBECONFIG])
    if not found:
        raise Refused(MISSING, reason="NoCluster")
    return await _KubeconfigAccess.load(found, context, anonymous)


def current_namespace(kubeconfig: Path | None, context: str = "") -> str:
    """The namespace that kubectl would use here: that of the (current) context or of our pod, else `default`.

    Makes no call.  Raises `Refused` with reason `BadKubeconfig`.
    """
    named = _named(kubeconfig)
    if not (named or context) and os.environ.get(IN_CLUSTER):
        return pod_namespace() or DEFAULT_NAMESPACE
    return namespace_of(_files(named or [HOME_KUBECONFIG]), context) or DEFAULT_NAMESPACE


def pod_namespace() -> str:
    """The namespace of this process's pod; empty outside of a pod."""
    return POD_NAMESPACE.read_text().strip() if os.environ.get(IN_CLUSTER) and POD_NAMESPACE.is_file() else ""


def _named(kubeconfig: Path | None) -> list[str]:
    """The paths that are configured; one setting may name several, and an empty one names none."""
    said = os.environ.get("KUBECONFIG", "") if kubeconfig in (None, Path()) else str(kubeconfig)
    return [path for path in said.split(os.pathsep) if path]


def _files(paths: list[str]) -> list[str]:
    return [path for path in map(os.path.expanduser, paths) if Path(path).is_file()]


class _Access:
    """An `Access` on a configuration of the official client."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self.url: str = configuration.host.rstrip("/")
        self.options: Mapping[str, Any] = {
            option: value
            for option, value in (
                ("server_hostname", configuration.tls_server_name),
                ("proxy", configuration.proxy),
                ("proxy_headers", configuration.proxy_headers),
            )
            if value
        }
        self._certificates = _certificates(configuration)

    def open(self, requests: type[aiohttp.ClientRequest] = aiohttp.ClientRequest) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            # Unbounded: the limiter bounds requests, and watches must not wait for them.
            connector=aiohttp.TCPConnector(limit=0, ssl=self._trust(), socket_factory=kept_alive),
            # Reading the environment costs more than the request.
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
            request_class=requests,
            response_class=AbruptResponse,
            raise_for_status=must_have_upgraded,
        )

    def _trust(self) -> ssl.SSLContext:
        return _context(self._configuration)

    def _use_certificates(self, configuration: Any) -> None:
        """From now on no request uses a connection with other certificates than these.  Raises `Transient`."""
        try:
            if (found := _certificates(configuration)) != self._certificates:
                self.options = {**self.options, "ssl": _context(configuration)}
                self._certificates = found
        except OSError as error:
            # Another program may be writing the file at this moment.
            raise Transient(f"the new certificates cannot be used: {error}") from error

    async def headers(self) -> Mapping[str, str]:
        settings = await self._configuration.auth_settings()
        return {setting["key"]: setting["value"] for setting in settings.values() if setting["value"]}


class _PodAccess(_Access):
    """The service account of this process's pod; the client reads its token again every minute."""

    def __init__(self, configuration: Any) -> None:
        _load_service_account(configuration)
        super().__init__(configuration)

    async def headers(self) -> Mapping[str, str]:
        try:
            return await super().headers()
        except _client().ConfigException as error:
            raise Transient(f"the service account's token cannot be read: {error}") from error

    async def renew(self) -> None:
        try:
            _load_service_account(self._configuration)
        except Refused as refusal:
            raise Transient(str(refusal)) from refusal

    async def trust(self) -> None:
        self._use_certificates(self._configuration)


class _KubeconfigAccess(_Access):
    """A kubeconfig, or several, merged as kubectl merges them."""

    def __init__(
        self, paths: Sequence[str], named: str, anonymous: bool, configuration: Any, plugin: "_Plugin | None"
    ) -> None:
        """`named` is the context that is used; empty for the current one."""
        self._paths = paths
        self._named = named
        self._anonymous = anonymous
        self._plugin = plugin
        try:
            # Now: the files are deleted after loading.
            super().__init__(configuration)
            self._context = super()._trust()
        except OSError as error:
            raise Refused(
                f"the certificates in {os.pathsep.join(paths)} cannot be used: {error}", reason="BadKubeconfig"
            ) from error
        self._renewal: asyncio.Task[str] | None = None
        """The last renewal: why it failed, or empty; all calls share it."""
        self._begun_at = self._renewed_at = time.monotonic()

    @classmethod
    async def load(cls, paths: Sequence[str], named: str, anonymous: bool) -> "_KubeconfigAccess":
        with tempfile.TemporaryDirectory() as folder:
            return cls(paths, named, anonymous, *await _load(paths, named, anonymous, Path(folder)))

    def _trust(self) -> ssl.SSLContext:
        return self._context

    async def headers(self) -> Mapping[str, str]:
        due = self._plugin is not None and self._plugin.is_due() and not self._rests(PLUGIN_PAUSE_SECONDS)
        if due and (why := await self._renewed()):
            # The API server says when the present ones no longer hold.
            log.warning("credentials are not renewed", why=why)
        return await super().headers()

    async def renew(self) -> None:
        if why := await self._renewed():
            raise Transient(why)

    async def _renewed(self) -> str:
        """Why there are no new credentials, or empty.  Many calls are rejected together: one renewal is for all."""
        if self._renewal is None or not self._rests(RENEWAL_PAUSE_SECONDS):
            self._begun_at = time.monotonic()
            self._renewal = asyncio.create_task(self._renew())
        left = self._begun_at + RENEWAL_SECONDS - time.monotonic()
        await asyncio.wait((self._renewal,), timeout=max(left, 0.0))
        if self._renewal.done():
            return self._renewal.result()
        return self._plugin.told(SILENT) if self._plugin is not None else "the kubeconfig is being read again"

    def _rests(self, seconds: float) -> bool:
        """True while a renewal runs, and for so long after the last one."""
        running = self._renewal is not None and not self._renewal.done()
        return running or time.monotonic() - self._renewed_at < seconds

    async def _renew(self) -> str:
        try:
            with tempfile.TemporaryDirectory() as folder:
                fresh, self._plugin = await _load(self._paths, self._named, self._anonymous, Path(folder))
                self._use_certificates(fresh)
        except (Transient, Refused, OSError) as trouble:
            # Another program may be writing the file at this moment, or there is no room for temporary files.
            return str(trouble)
        finally:
            self._renewed_at = time.monotonic()
        self._configuration.api_key = fresh.api_key
        return ""

    async def trust(self) -> None:
        await self.renew()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    """The credentials in an `ExecCredential`."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _Given(msgspec.Struct, frozen=True, rename="camel"):
    """What a plugin prints."""

    status: _Status
    api_version: str = ""


class _Plugin:
    """The program that a kubeconfig names for credentials."""

    def __init__(self, settings: Mapping[str, Any], cluster: Mapping[str, Any], paths: Sequence[str]) -> None:
        self._settings = settings
        self._cluster = cluster
        self._paths = paths
        self._expires: datetime | None = None

    def is_due(self) -> bool:
        """True shortly before the credentials expire; credentials without an expiry are renewed when rejected."""
        return self._expires is not None and datetime.now(UTC) + EXPIRY_MARGIN > self._expires

    async def run(self) -> _Status:
        """Run the plugin; return its credentials.  Raises `Transient`."""
        try:
            if shutil.which(self._settings["command"]) is None:
                raise Transient(self.told(f"is not installed. {self._settings.get('installHint') or ''}"))
            given = await _run_plugin(self._settings, self._cluster)
            self._expires = given.expiration_timestamp
        except TimeoutError as error:
            raise Transient(self.told(SILENT)) from error
        except LookupError as error:
            raise Transient(self.told(f"failed: there is no {error}")) from error
        except (OSError, ValueError, TypeError, AttributeError, *MALFORMED) as error:
            raise Transient(self.told(f"failed: {error}")) from error
        certificate = given.client_certificate_data
        if bool(certificate) != bool(given.client_key_data) or not (certificate or given.token):
            raise Transient(self.told("failed: it gave neither a token nor a certificate with its key"))
        return given

    def told(self, what: str) -> str:
        """One line about this plugin."""
        line = f"the credential plugin {self._settings.get('command')} named in {os.pathsep.join(self._paths)} {what}"
        return " ".join(line.split())


def _certificates(configuration: Any) -> list[bytes]:
    """The authorities, and the client's certificate with its key.  Raises `OSError`."""
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return [Path(file).read_bytes() if file else b"" for file in files]


def _context(configuration: Any) -> ssl.SSLContext:
    """The trusted authorities, and the client certificate if there is one.  Raises `OSError` for bad files."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _client() -> Any:
    from kubernetes.aio import config

    return config


def _new_configuration() -> Any:
    from kubernetes.aio.client.configuration import Configuration

    return Configuration()


async def _run_plugin(settings: Mapping[str, Any], cluster: Mapping[str, Any]) -> _Status:
    """What it prints.  Raises `TimeoutError`, and for what is no plugin or no credentials what Python raises there.

    As kubectl 1.36 runs it: a person at the terminal sees what it says, and has the time to log in, also in a browser.
    """
    mode, person = settings.get("interactiveMode"), os.isatty(0)
    if mode == "Always" and not person:
        raise ValueError("it asks a person, and standard input is not a terminal")
    person &= mode != "Never"
    seen = person or os.isatty(2)
    spec = {"interactive": person} | ({"cluster": _told_of(cluster)} if settings.get("provideClusterInfo") else {})
    asked = {"apiVersion": settings["apiVersion"], "kind": "ExecCredential", "spec": spec}
    variables = {each["name"]: each["value"] for each in settings.get("env") or ()}
    process = await asyncio.create_subprocess_exec(
        settings["command"],
        *(settings.get("args") or ()),
        env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
        stdin=None if person else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if seen else asyncio.subprocess.PIPE,
        start_new_session=not seen,
    )
    try:
        async with asyncio.timeout(None if seen else PLUGIN_SECONDS):
            output, complaint = await process.communicate()
    finally:
        if process.returncode is None and seen:
            process.kill()
        elif process.returncode is None:
            # With the programs that it has begun.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise ValueError(f"it ended with {process.returncode}: {(complaint or b'').decode(errors='replace')}")
    given = msgspec.json.decode(output, type=_Given)
    if given.api_version != settings["apiVersion"]:
        raise ValueError(f"it answers in {given.api_version}, and the kubeconfig asks for {settings['apiVersion']}")
    return given.status


def _told_of(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """A kubeconfig's cluster as an `ExecCredential` names it."""
    told = {field: cluster[field] for field in TOLD if field in cluster}
    if file := cluster.get("certificate-authority"):
        told.setdefault("certificate-authority-data", base64.b64encode(Path(file).read_bytes()).decode())
    more = {each["name"]: each["extension"] for each in cluster.get("extensions") or ()}
    return told | ({"config": more[TOLD_MORE]} if TOLD_MORE in more else {})


def _load_service_account(configuration: Any) -> None:
    try:
        _client().load_incluster_config(client_configuration=configuration)
    except (_client().ConfigException, OSError) as error:
        raise Refused(f"the service account of this pod cannot be used: {error}", reason="NoCluster") from error


async def _load(paths: Sequence[str], named: str, anonymous: bool, folder: Path) -> tuple[Any, _Plugin | None]:
    """The configuration in these files, and the credential plugin if they name one.

    `folder` receives the certificates and keys that the kubeconfig holds itself: OpenSSL reads only files.
    """
    cluster, user, _ = current_context(paths, named)
    if anonymous:
        user = {}
    plugin = None
    if settings := user.pop("exec", None):
        plugin = _Plugin(settings, dict(cluster), paths)
        given = await plugin.run()
        if given.token:
            user["token"] = given.token
        if given.client_certificate_data and given.client_key_data:
            user["client-certificate"] = _file(folder / "given.crt", given.client_certificate_data.encode())
            user["client-key"] = _file(folder / "given.key", given.client_key_data.encode())
    configuration, client = _new_configuration(), _client()
    try:
        for entry in (cluster, user):
            for field in INLINED:
                if data := entry.pop(f"{field}-data", None):
                    entry[field] = _file(folder / field, base64.b64decode(data))
        await client.load_kube_config_from_dict(
            {
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{"name": "it", "cluster": cluster}],
                "users": [{"name": "it", "user": user}],
            },
            client_configuration=configuration,
        )
    except (client.ConfigException, OSError, ValueError, TypeError, LookupError, AttributeError) as why:
        # The client validates little: a malformed file raises many kinds of errors.
        raise unusable(paths, why) from why
    return configuration, plugin


def _file(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)
