"""Logs and exec, through the API server as people use them, and the kubelet's API itself."""

import asyncio
import re
import ssl

import aiohttp
import pytest

from devcluster import binaries
from tests.devcluster.apiserver.client import BOUND
from tests.devcluster.node.kit import FOREVER


async def test_a_carriage_return_is_part_of_a_line(space):
    await space.run("p", r"printf 'lost\r\nhalf\rline\r\n\rend\n'")
    await space.over("p")
    assert await space.logs("p") == "lost\r\nhalf\rline\r\n\rend\n"
    assert await space.logs("p", "tailLines=2") == "half\rline\r\n\rend\n"


async def test_logs_have_tails_times_and_limits(space):
    await space.run("p", "for i in 1 2 3; do echo line $i; done; echo err >&2; printf end")
    await space.over("p")
    whole = await space.logs("p")
    assert sorted(whole.split("\n")) == ["end", "err", "line 1", "line 2", "line 3"]
    assert whole.startswith("line 1\nline 2\nline 3\n")
    assert await space.logs("p", "tailLines=0") == ""
    assert len((await space.logs("p", "tailLines=2")).splitlines()) == 2
    assert await space.logs("p", "limitBytes=8") == "line 1\nl"
    assert await space.logs("p", "sinceSeconds=600") == whole
    assert await space.logs("p", "sinceTime=2100-01-01T00:00:00Z") == ""
    first = (await space.logs("p", "timestamps=true")).splitlines()[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z line 1", first)


async def test_a_log_is_followed_to_its_end(space):
    await space.run("p", "echo one; while [ ! -e /run/go ]; do sleep 0.02; done; echo two")
    await space.logged("p", "one")
    async with space.following("p") as whole, space.following("p", "tailLines=0") as tail:
        await space.exec("p", "touch", "/run/go")
        assert (await whole.text(), await tail.text()) == ("one\ntwo\n", "two\n")


async def test_a_pod_that_still_ends_hides_none_of_its_successors_name(space):
    # It ignores SIGTERM, so that it goes on for a moment after its deletion.
    await space.run("p", "trap '' TERM; echo the first; sleep 1000")
    await space.logged("p", "the first")
    await space.api.delete(space.path("pods", "p"), {"gracePeriodSeconds": 0})
    await space.run("p", "echo the second; " + FOREVER)
    await space.ready("p")
    assert "the second" in (await space.exec("p", "cat", "/proc/1/cmdline")).out
    assert "the first" not in await space.logs("p")
    await space.logged("p", "the second")


async def test_long_lines_and_bytes_arrive_as_they_are(space):
    script = "import sys; sys.stdout.buffer.write(b'x' * 50_000 + b'\\n' + bytes([200, 10]) + b'end')"
    await space.run("p", container={"command": ["python", "-c", script]})
    await space.over("p")
    answer = await space.api.get(f"{space.path('pods', 'p')}/log")
    assert answer.body == b"x" * 50_000 + b"\n" + bytes([200, 10]) + b"end"


async def test_a_container_that_waits_has_no_log(space):
    await space.run("p", container={"image": "missing/x"})
    await space.pod("p", lambda pod: pod)
    answer = await space.api.get(f"{space.path('pods', 'p')}/log")
    assert answer.code == 400
    assert "is waiting to start" in answer.body["message"]


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_exec_keeps_streams_and_exit_codes_apart(space, protocol):
    await space.run("p")
    await space.ready("p")
    done = await space.exec("p", "sh", "-c", "echo out; echo err >&2; exit 7", protocol=protocol)
    assert done == (7, "out\n", "err\n")
    assert (await space.exec("p", "true", protocol=protocol)).code == 0


async def test_exec_passes_stdin_to_its_end(space):
    await space.run("p")
    await space.ready("p")
    done = await space.exec("p", "sh", "-c", "wc -c; pwd; echo $HOSTNAME", stdin=b"x" * 300_000)
    assert done.out.splitlines()[0] == "300000"
    assert done.out.splitlines()[2] == "p"


async def test_exec_says_only_what_was_asked_for(space):
    await space.run("p")
    await space.ready("p")
    query = "command=sh&command=-c&command=head+-c+300000+/dev/zero+>%262&stdout=true"
    url = f"{space.api.url}{space.path('pods', 'p')}/exec?{query}"
    async with space.api.session.ws_connect(url, protocols=("v5.channel.k8s.io",)) as socket:
        assert [message.data[:1] async for message in socket] == [b"\x03"]


async def test_exec_without_a_stream_is_refused(space):
    await space.run("p")
    await space.ready("p")
    answer = await _handshake(space, "p", "command=true")
    assert (answer.code, "at least 1 of stdin, stdout, stderr" in str(answer.body)) == (400, True)


async def test_exec_is_only_offered_over_websockets(space):
    await space.run("p")
    await space.ready("p")
    answer = await space.api.create(f"{space.path('pods', 'p')}/exec?command=true", {})
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert "SPDY is not" in answer.body["message"]


async def test_a_container_is_named_where_a_pod_has_two(space):
    containers = [{"name": name, "image": "i", "command": ["sh", "-c", FOREVER]} for name in ("main", "other")]
    await space.run("p", containers=containers)
    await space.ready("p")
    path = f"{space.path('pods', 'p')}/log"
    unnamed, unknown = await space.api.get(path), await space.api.get(f"{path}?container=nobody")
    assert "a container name must be specified" in unnamed.body["message"]
    assert "container nobody is not valid" in unknown.body["message"]
    assert await space.logs("p", "container=other") == "up\n"


async def test_kubectl_execs_with_input_and_exit_code(cluster, space, tmp_path):
    try:
        command = [str(binaries.kubectl()), "--kubeconfig", str(cluster.kubeconfig("admin"))]
    except binaries.MissingProgram as missing:
        pytest.skip(str(missing))
    await space.run("p")
    await space.ready("p")
    command += ["--cache-dir", str(tmp_path), "-n", space.name, "exec", "-i", "p", "--", "sh", "-c", "cat; exit 3"]
    pipe = asyncio.subprocess.PIPE
    kubectl = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(BOUND):
        output, errors = await kubectl.communicate(b"hello")
    assert (output, kubectl.returncode) == (b"hello", 3), errors


async def test_exec_is_for_those_who_accept_anything(space):
    await space.run("p")
    await space.ready("p")
    answer = await _handshake(space, "p", "command=true&stdout=true", Accept="application/json")
    assert answer.code == 406


async def _handshake(space, pod, query, **headers):
    """The answer to a request for a WebSocket."""
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13"}
    upgrade |= {"Sec_WebSocket_Key": "c2l4dGVlbiBieXRlcyAhIQ==", "Sec_WebSocket_Protocol": "v5.channel.k8s.io"}
    return await space.api.get(f"{space.path('pods', pod)}/exec?{query}", **upgrade, **headers)


async def test_exec_with_a_terminal(space):
    await space.run("p")
    await space.ready("p")
    query = "command=sh&command=-c&command=tty+-s+%26%26+echo+yes&tty=true&stdout=true&stdin=true"
    url = f"{space.api.url}{space.path('pods', 'p')}/exec?{query}"
    said = b""
    async with space.api.session.ws_connect(url, protocols=("v5.channel.k8s.io",)) as socket:
        async for message in socket:
            said += message.data[1:] if message.data[0] == 1 else b""
    assert said == b"yes\r\n"


async def test_a_process_whose_client_left_goes_on(space):
    await space.run("p")
    await space.ready("p")
    await _leave(
        space, "command=sh&command=-c&command=echo+up%3B+sleep+0.5%3B+touch+/run/done&stdout=true", b"\x01up\n"
    )
    assert (
        await space.exec("p", "sh", "-c", "while [ ! -e /run/done ]; do sleep 0.02; done; echo done")
    ).out == "done\n"


async def test_a_process_whose_terminal_was_left_is_ended(space):
    await space.run("p")
    await space.ready("p")
    await _leave(space, "command=sh&command=-c&command=echo+up%3B+exec+sleep+777&stdout=true&tty=true", b"\x01up\r\n")
    async with asyncio.timeout(10):
        while "sleep 777" in (await space.exec("p", "ps", "ax", "-o", "args")).out:
            await asyncio.sleep(0.02)


async def _leave(space, query, said):
    """Start something, and go when it has said this."""
    url = f"{space.api.url}{space.path('pods', 'p')}/exec?{query}"
    async with space.api.session.ws_connect(url, protocols=("v5.channel.k8s.io",)) as socket:
        assert (await socket.receive()).data == said


async def test_the_kubelet_api_wants_the_token(cluster, space):
    await space.run("p", FOREVER)
    await space.ready("p")
    node = (await space.api.get("/api/v1/nodes/node-0")).body["status"]
    url = f"https://{node['addresses'][0]['address']}:{node['daemonEndpoints']['kubeletEndpoint']['Port']}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        for token in ("", "wrong"):
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{url}/containerLogs/{space.name}/p/main", headers=headers) as response:
                assert response.status == 401
