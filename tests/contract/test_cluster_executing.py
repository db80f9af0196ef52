"""What every `Cluster` promises of commands in pods; the programs are this machine's."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from devcluster.cluster import ADMIN, Devcluster, DevelopmentCluster
from devcluster.controlplane import ControlPlane
from shared.cluster import Cluster, Execution, Manifest, Resource
from shared.cluster.examination import Right
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Custom, Pod
from shared.errors import Refused, Transient, Trouble
from tests.devcluster.node.kit import FOREVER, skip_unless_permitted
from tests.kit.clusters import eventually
from tests.kit.controlplane import require_control_plane
from tests.kit.watching import PATIENCE
from tests.memory.cluster import MemoryCluster
from tests.memory.store import MemoryStore

NAMESPACE = "default"
STRANGER = "scaler"
"""A user without rights, where rights are asked for."""

RBAC = "rbac.authorization.k8s.io"
ROLES = Resource(RBAC, "v1", "roles", "Role", Custom)
BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding", Custom)

Server = DevelopmentCluster | None
REAL = pytest.param("real", marks=pytest.mark.real)
SERVED = ["embedded", REAL]
"""Those with containers, and with bytes on the way."""


def a_pod(name: str, command: str = FOREVER, **spec: Any) -> Manifest:
    main = {"name": "main", "image": "code:1", "command": ["sh", "-c", command]}
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [main], **spec}}


def _is_running(pod: Pod | None) -> bool:
    statuses = (pod.status.container_statuses if pod else None) or ()
    return any(status.ready for status in statuses)


def _is_over(pod: Pod | None) -> bool:
    return pod is not None and pod.status.phase in ("Succeeded", "Failed")


async def _has_a_container(cluster: Cluster) -> None:
    async def created() -> bool:
        try:
            await cluster.create(PODS, NAMESPACE, a_pod("p"))
        except Refused:
            # The service account comes a moment after its namespace.
            return False
        return True

    await eventually(created, bool)
    await eventually(functools.partial(cluster.get, PODS, NAMESPACE, "p"), _is_running)


@pytest.fixture(scope="module", params=["memory", *SERVED])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each cluster with a node on which a pod, `p`, has a container, `main`; the one in memory needs neither."""
    if request.param == "memory":
        yield None
        return
    kind: Callable[..., DevelopmentCluster] = Devcluster
    if request.param == "real":
        require_control_plane()
        kind = ControlPlane
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "code").mkdir()
    with asyncio.Runner() as runner:
        skip_unless_permitted(folder, runner)
        server = kind(folder / "data", [STRANGER], {"code": folder / "code"})
        runner.run(server.__aenter__())
        try:
            runner.run(_with(server, _has_a_container))
            yield server
        finally:
            runner.run(server.__aexit__(None, None, None))


async def _with(server: DevelopmentCluster, use: Any) -> None:
    cluster = await KubeCluster.connect(server.kubeconfig(ADMIN))
    try:
        await use(cluster)
    finally:
        await cluster.close()


async def _process(_: str, __: str, ___: str, command: Sequence[str]) -> Execution:
    """What a node does: start it."""
    try:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    except OSError as error:
        raise Refused(f"execute {command[0]}: {error}", reason="CannotExecute") from error
    try:
        output, _nothing = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Execution(process.returncode, output)


@pytest.fixture
async def cluster(server: Server) -> AsyncIterator[Cluster]:
    if server is None:
        store = MemoryStore()
        store.program = _process
        store.create(PODS, NAMESPACE, a_pod("p"))
        yield MemoryCluster(store)
        return
    client = await KubeCluster.connect(server.kubeconfig(ADMIN))
    yield client
    await client.close()


async def sh(cluster: Cluster, script: str, *, timeout: float = PATIENCE, **more: Any) -> Execution:
    return await cluster.execute(NAMESPACE, "p", "main", ["sh", "-c", script], timeout=timeout, **more)


async def trouble_of(cluster: Cluster, pod: str, container: str, *command: str) -> Trouble:
    with pytest.raises(Trouble) as caught:
        await cluster.execute(NAMESPACE, pod, container, command, timeout=PATIENCE)
    return caught.value


async def test_the_output_is_what_the_command_wrote(cluster: Cluster) -> None:
    assert await sh(cluster, "echo hello; echo no >&2") == Execution(0, b"hello\n")


@pytest.mark.parametrize("code", [1, 7, 255])
async def test_the_exit_code_is_kept(cluster: Cluster, code: int) -> None:
    assert await sh(cluster, f"echo out; exit {code}") == Execution(code, b"out\n")


async def test_arguments_arrive_byte_for_byte(cluster: Cluster) -> None:
    arguments = ["a b; touch x", "$HOME", "'", "&command=x", "ü+%", ""]
    said = await cluster.execute(NAMESPACE, "p", "main", ["printf", "[%s]", *arguments], timeout=PATIENCE)
    assert said.output.decode() == "".join(f"[{argument}]" for argument in arguments)


async def test_a_long_command_arrives_whole(cluster: Cluster) -> None:
    workers = [f"a-job-with-many-workers-worker-{number}" for number in range(2_000)]
    said = await cluster.execute(NAMESPACE, "p", "main", ["sh", "-c", "echo $#", "sh", *workers], timeout=PATIENCE)
    assert said == Execution(0, b"2000\n")


async def test_of_a_long_output_the_beginning_is_kept(cluster: Cluster) -> None:
    assert await sh(cluster, "printf beginning; head -c 300000 /dev/zero", most=12) == Execution(0, b"beginning\0\0\0")
    assert len((await sh(cluster, "head -c 300000 /dev/zero")).output) == 65536
    assert len((await sh(cluster, "head -c 300000 /dev/zero", most=10**6)).output) == 300_000


async def test_a_command_that_takes_too_long_is_given_up(cluster: Cluster) -> None:
    with pytest.raises(Transient, match="timed out"):
        await sh(cluster, "exec sleep 5", timeout=0.3)
    assert await sh(cluster, "echo still here") == Execution(0, b"still here\n")


async def test_a_program_that_is_not_there_is_refused(cluster: Cluster) -> None:
    for program in ("no-such-program", "/no/such/program", "/etc/passwd"):
        trouble = await trouble_of(cluster, "p", "main", program)
        assert isinstance(trouble, Refused)
        assert trouble.reason == "CannotExecute"


async def test_a_pod_that_is_not_there_is_refused(cluster: Cluster) -> None:
    trouble = await trouble_of(cluster, "nobody", "main", "true")
    assert isinstance(trouble, Refused)
    assert trouble.reason == "NotFound"


async def test_many_at_once_are_kept_apart(cluster: Cluster) -> None:
    ended = await asyncio.gather(*(sh(cluster, f"echo {number}; exit {number}") for number in range(10)))
    assert ended == [Execution(number, f"{number}\n".encode()) for number in range(10)]


@pytest.mark.parametrize("server", SERVED, indirect=True)
async def test_a_hundred_megabytes_are_read_and_dropped(cluster: Cluster) -> None:
    assert await sh(cluster, "head -c 100000000 /dev/zero; exit 3", most=2) == Execution(3, b"\0\0")


@pytest.mark.parametrize("server", SERVED, indirect=True)
async def test_a_command_that_never_stops_writing_is_given_up(cluster: Cluster) -> None:
    with pytest.raises(Transient, match="timed out"):
        await sh(cluster, "exec yes", timeout=0.3)


@pytest.mark.parametrize("server", SERVED, indirect=True)
async def test_a_container_that_is_not_there_is_refused(cluster: Cluster) -> None:
    trouble = await trouble_of(cluster, "p", "nobody", "true")
    assert isinstance(trouble, Refused)
    assert (trouble.reason, "container nobody is not valid" in str(trouble)) == ("BadRequest", True)


@pytest.mark.parametrize("server", SERVED, indirect=True)
async def test_a_container_that_does_not_run_is_refused(cluster: Cluster) -> None:
    await cluster.create(PODS, NAMESPACE, a_pod("over", "exit 0"))
    await cluster.create(PODS, NAMESPACE, a_pod("nowhere", nodeSelector={"no": "such"}))
    await eventually(functools.partial(cluster.get, PODS, NAMESPACE, "over"), _is_over)
    over, nowhere = [await trouble_of(cluster, pod, "main", "true") for pod in ("over", "nowhere")]
    assert isinstance(over, Refused)
    assert (over.reason, 'container not found ("main")' in str(over)) == ("CannotExecute", True)
    assert isinstance(nowhere, Refused)
    assert (nowhere.reason, "does not have a host" in str(nowhere)) == ("BadRequest", True)


@pytest.mark.parametrize("server", [REAL], indirect=True)
@pytest.mark.parametrize("verb", ["create", "get"])
async def test_one_right_is_not_enough(server: DevelopmentCluster, cluster: Cluster, verb: str) -> None:
    async with _stranger(server, cluster, verb) as stranger:
        with pytest.raises(Refused) as refusal:
            await sh(stranger, "exit 0")
    assert refusal.value.reason == "Forbidden"


@pytest.mark.parametrize("server", [REAL], indirect=True)
async def test_it_takes_the_rights_to_create_and_to_get(server: DevelopmentCluster, cluster: Cluster) -> None:
    async with _stranger(server, cluster, "create", "get") as stranger:
        assert await sh(stranger, "exit 3") == Execution(3, b"")


@asynccontextmanager
async def _stranger(server: DevelopmentCluster, cluster: Cluster, *verbs: str) -> AsyncIterator[KubeCluster]:
    """A user with these verbs on `pods/exec`, and nothing else."""
    name = "-".join(["executing", *verbs])
    role = {"apiGroup": RBAC, "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": STRANGER, "namespace": "muster"}
    rule = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": verbs}
    await cluster.create(ROLES, NAMESPACE, {"metadata": {"name": name}, "rules": [rule]})
    binding = await cluster.create(
        BINDINGS, NAMESPACE, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    )
    stranger = await KubeCluster.connect(server.kubeconfig(STRANGER))

    async def rights() -> set[str]:
        return {verb for verb in ("create", "get") if await stranger.may(Right(verb, "", "pods/exec"), NAMESPACE)}

    try:
        # The API server learns of rights a moment after they are written or taken away.
        await eventually(rights, lambda known: known == set(verbs))
        yield stranger
    finally:
        await stranger.close()
        await cluster.delete(BINDINGS, NAMESPACE, name, uid=binding.metadata.uid)
