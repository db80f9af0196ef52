"""Finding the cluster and proving who we are; the only file that knows the official Kubernetes client.

It is imported when a cluster is looked for: it takes about 20 MiB.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from shared.cluster.calls import Access
from shared.cluster.connections import AbruptResponse, must_have_upgraded
from shared.errors import Refused, Transient

HOME_KUBECONFIG = "~/.kube/config"
IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"

PLUGIN_CHECK_SECONDS = 60.0
"""How often a credential plugin's token is looked at; the client runs the plugin again 5 minutes before it expires."""

RENEWAL_PAUSE_SECONDS = 1.0
"""Credentials that are not accepted are not read again sooner than this."""

MISSING = "no Kubernetes cluster is configured: give a kubeconfig, or set KUBECONFIG, or write ~/.kube/config"


async def find_cluster(kubeconfig: Path | None) -> Access:
    """The cluster that kubectl would use here; `kubeconfig` goes before everything else.

    Raises `Refused` with reason `NoCluster` or `BadKubeconfig`, `Transient` when a credential plugin fails.
    """
    if named := _named(kubeconfig):
        found = _files(named)
        if not found:
            raise Refused(f"there is no kubeconfig at {', '.join(named)}", reason="NoCluster")
        return await _KubeconfigAccess.load(os.pathsep.join(found))
    if os.environ.get(IN_CLUSTER):
        return _PodAccess(_new_configuration())
    found = _files([HOME_KUBECONFIG])
    if not found:
        raise Refused(MISSING, reason="NoCluster")
    return await _KubeconfigAccess.load(found[0])


def current_namespace(kubeconfig: Path | None) -> str:
    """The namespace that kubectl would work in here: that of the current context or of our pod, else `default`.

    Asks nothing of a cluster.  Raises `Refused` with reason `BadKubeconfig`.
    """
    named = _named(kubeconfig)
    if not named and os.environ.get(IN_CLUSTER):
        return pod_namespace() or DEFAULT_NAMESPACE
    return _current_context(_files(named or [HOME_KUBECONFIG]))[1] or DEFAULT_NAMESPACE


def pod_namespace() -> str:
    """The namespace of the pod that we run in; empty outside of one."""
    return POD_NAMESPACE.read_text().strip() if os.environ.get(IN_CLUSTER) and POD_NAMESPACE.is_file() else ""


def _named(kubeconfig: Path | None) -> list[str]:
    """The files that are asked for; one setting may name several, and an empty one names none."""
    said = os.environ.get("KUBECONFIG", "") if kubeconfig in (None, Path()) else str(kubeconfig)
    return [path for path in said.split(os.pathsep) if path]


def _files(paths: list[str]) -> list[str]:
    """Those that are there."""
    return [path for path in map(os.path.expanduser, paths) if Path(path).is_file()]


def _current_context(paths: list[str]) -> tuple[str, str]:
    """The name of the current context and its namespace, each from the first file that has it; empty where none has.

    So does kubectl; the client takes the last file's word for which context is the current one.
    """
    try:
        configs = [yaml.safe_load(Path(path).read_text()) or {} for path in paths]
        name = next(filter(None, (config.get("current-context") for config in configs)), "")
        contexts = [known for config in configs for known in config.get("contexts") or () if known["name"] == name]
        context = contexts[0].get("context") or {} if contexts else {}
        return str(name), str(context.get("namespace") or "")
    except (OSError, yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as why:
        raise _unusable(paths, why) from why


def _unusable(paths: list[str], why: Exception) -> Refused:
    told = " ".join(str(why).split())
    return Refused(f"the kubeconfig {os.pathsep.join(paths)} cannot be used: {told}", reason="BadKubeconfig")


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

    def open(self, requests: type[aiohttp.ClientRequest] = aiohttp.ClientRequest) -> aiohttp.ClientSession:
        from kubernetes.aio.client.rest import RESTClientObject

        # Looking at the environment costs more than the request, and there are no cookies to keep.
        self._configuration.client_session_kwargs = {
            "trust_env": False,
            "cookie_jar": aiohttp.DummyCookieJar(),
            "request_class": requests,
            "response_class": AbruptResponse,
            "raise_for_status": must_have_upgraded,
        }
        # Unbounded: the limiter bounds requests, and watches must not wait for them.
        self._configuration.connection_pool_maxsize = 0
        session: aiohttp.ClientSession = RESTClientObject(self._configuration)._create_pool_manager()
        return session

    async def headers(self) -> Mapping[str, str]:
        settings = await self._configuration.auth_settings()
        return {setting["key"]: setting["value"] for setting in settings.values() if setting["value"]}


class _PodAccess(_Access):
    """The service account of the pod we run in; the client reads its token again every minute."""

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


class _KubeconfigAccess(_Access):
    """A kubeconfig, or several, merged as kubectl merges them."""

    def __init__(self, paths: str, configuration: Any, run_plugin: Callable[[], Awaitable[str]] | None) -> None:
        super().__init__(configuration)
        self._paths = paths
        self._run_plugin = run_plugin
        self._looked_at = time.monotonic()
        self._renewed_at = -RENEWAL_PAUSE_SECONDS
        self._renewing = asyncio.Lock()

    @classmethod
    async def load(cls, paths: str) -> "_KubeconfigAccess":
        return cls(paths, *await _load(paths))

    def open(self, requests: type[aiohttp.ClientRequest] = aiohttp.ClientRequest) -> aiohttp.ClientSession:
        try:
            return super().open(requests)
        except OSError as error:
            raise Refused(
                f"the certificates in {self._paths} cannot be used: {error}", reason="BadKubeconfig"
            ) from error
        finally:
            _forget_files()

    async def headers(self) -> Mapping[str, str]:
        if self._run_plugin is not None and time.monotonic() - self._looked_at > PLUGIN_CHECK_SECONDS:
            async with self._renewing:
                if time.monotonic() - self._looked_at > PLUGIN_CHECK_SECONDS:
                    self._looked_at = time.monotonic()
                    self._configuration.api_key["BearerToken"] = await self._run_plugin()
        return await super().headers()

    async def renew(self) -> None:
        async with self._renewing:
            # Many calls are refused together; the first one reads for all, and a plugin is not run for each.
            if time.monotonic() - self._renewed_at < RENEWAL_PAUSE_SECONDS:
                return
            self._renewed_at = time.monotonic()
            try:
                fresh, self._run_plugin = await _load(self._paths)
            except Refused as refusal:
                # Whoever renews credentials may be writing the file at this moment.
                raise Transient(str(refusal)) from refusal
            finally:
                _forget_files()
            self._configuration.api_key = fresh.api_key
            self._looked_at = time.monotonic()


def _client() -> Any:
    from kubernetes.aio import config

    return config


def _new_configuration() -> Any:
    from kubernetes.aio.client.configuration import Configuration

    return Configuration()


def _load_service_account(configuration: Any) -> None:
    try:
        _client().load_incluster_config(client_configuration=configuration)
    except (_client().ConfigException, OSError) as error:
        raise Refused(f"the service account of this pod cannot be used: {error}", reason="NoCluster") from error


async def _load(paths: str) -> tuple[Any, Callable[[], Awaitable[str]] | None]:
    """The configuration in these files, and what gives a token that is still good if a plugin does."""
    configuration, client = _new_configuration(), _client()
    files = paths.split(os.pathsep)
    context = _current_context(files)[0] or None
    try:
        loader = await client.load_kube_config(
            config_file=paths, context=context, client_configuration=configuration, persist_config=False
        )
    except (client.ConfigException, OSError, yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as why:
        # The client checks little of what it reads, so a file of another shape shows in many ways.
        raise _unusable(files, why) from why
    if not (loader._user and "exec" in loader._user):
        return configuration, None
    if not configuration.api_key and not configuration.cert_file:
        # The client logs why, and goes on without credentials.
        raise Transient(f"the credential plugin named in {paths} gave no credentials")

    async def run_plugin() -> str:
        await loader.load_from_exec_plugin()
        token: str = loader.token
        return token

    return configuration, run_plugin if configuration.api_key else None


def _forget_files() -> None:
    """The client leaves keys from a kubeconfig in temporary files; once they are loaded nobody needs these."""
    _client().kube_config._cleanup_temp_files()
