"""Logs and exec, through to a node that speaks the kubelet's API."""

import asyncio
import json
import shutil
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from devcluster.certificates import server_context
from tests.devcluster.apiserver.conftest import TOKEN

PODS = "/api/v1/namespaces/default/pods"
V5 = "v5.channel.k8s.io"


class Node:
    """A kubelet API that writes down what it is asked."""

    def __init__(self):
        self.asked = []
        self.go_on = asyncio.Event()
        self.end = {"status": "Success"}
        self.refusal = None

    async def log(self, request):
        self.asked.append((request.path, dict(request.query), request.headers.get("Authorization")))
        if "missing" in request.path:
            return web.Response(status=400, text="container is waiting to start")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        if "follow" in request.query:
            await self.go_on.wait()
            await response.write(b"second\n")
        return response

    async def exec(self, request):
        if self.refusal:
            return self.refusal
        self.asked.append((request.path, [*request.query.items()], request.headers.get("Authorization")))
        socket = web.WebSocketResponse(protocols=[V5])
        await socket.prepare(request)
        async for message in socket:
            # Standard input (channel 0) comes back as output (1); then the exit code (3), as the kubelet says it.
            await socket.send_bytes(b"\x01" + message.data[1:].upper())
            await socket.send_bytes(b"\x03" + json.dumps(self.end).encode())
            break
        await socket.close()
        return socket

    @asynccontextmanager
    async def serving(self, certificates):
        app = web.Application()
        app.router.add_get("/containerLogs/{tail:.*}", self.log)
        app.router.add_get("/exec/{tail:.*}", self.exec)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context(certificates)).start()
        try:
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


@pytest.fixture
async def node(api, certificates):
    """A node with one pod on it."""
    node = Node()
    async with node.serving(certificates) as port:
        await api.create("/api/v1/nodes", {"metadata": {"name": "node-0"}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await api.merge("/api/v1/nodes/node-0/status", {"status": status})
        spec = {"nodeName": "node-0", "containers": [{"name": "main", "image": "i"}]}
        assert (await api.create(PODS, {"metadata": {"name": "worker"}, "spec": spec})).code == 201
        yield node


async def test_a_log_is_read_from_the_node(api, node):
    answer = await api.get(f"{PODS}/worker/log?tailLines=5&timestamps=true")
    assert (answer.code, answer.body) == (200, b"first\n")
    assert node.asked == [
        (
            "/containerLogs/default/worker/main",
            {"tailLines": "5", "timestamps": "true"},
            "Bearer node-token",
        )
    ]


async def test_a_followed_log_arrives_as_it_is_written(api, node):
    async with asyncio.timeout(10), api.session.get(f"{api.url}{PODS}/worker/log?follow=true") as response:
        assert await response.content.readline() == b"first\n"
        node.go_on.set()
        assert await response.content.readline() == b"second\n"


async def test_what_the_node_refuses_is_passed_on(api, node):
    spec = {"nodeName": "node-0", "containers": [{"name": "missing", "image": "i"}, {"name": "other", "image": "i"}]}
    await api.create(PODS, {"metadata": {"name": "waiting"}, "spec": spec})
    answer = await api.get(f"{PODS}/waiting/log?container=missing")
    assert (answer.code, answer.body["message"]) == (400, "container is waiting to start")
    unnamed = await api.get(f"{PODS}/waiting/log")
    assert "a container name must be specified" in unnamed.body["message"]
    assert (await api.get(f"{PODS}/waiting/log?container=nobody")).code == 400


async def test_exec_is_bridged_message_by_message(api, node):
    url = f"{api.url}{PODS}/worker/exec?command=cat&command=-&stdin=true&stdout=true&stderr=true&container=main"
    async with asyncio.timeout(10), api.session.ws_connect(url, protocols=[V5, "v4.channel.k8s.io"]) as socket:
        assert socket.protocol == V5
        await socket.send_bytes(b"\x00hello")
        assert (await socket.receive()).data == b"\x01HELLO"
        assert (await socket.receive()).data == b'\x03{"status": "Success"}'
        assert (await socket.receive()).type == aiohttp.WSMsgType.CLOSE
    [(path, query, token)] = node.asked
    assert (path, token) == ("/exec/default/worker/main", "Bearer node-token")
    assert query == [("command", "cat"), ("command", "-"), ("input", "1"), ("output", "1"), ("error", "1")]


async def test_an_exec_that_the_node_refuses_is_refused_in_its_words(api, node):
    node.refusal = web.Response(status=500, text='container not found ("main")')
    headers = {"Upgrade": "websocket", "Sec-WebSocket-Protocol": V5}
    answer = await api.get(f"{PODS}/worker/exec?command=true&stdout=true", **headers)
    assert (answer.code, answer.body) == (500, b'container not found ("main")')


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
async def test_kubectl_execs_with_input_and_exit_code(api, node, certificates, tmp_path):
    command = ["kubectl", "--server", api.url, "--token", TOKEN, "--cache-dir", str(tmp_path)]
    command += ["--certificate-authority", str(certificates / "ca.crt"), "exec", "-i", "worker", "--", "cat"]
    node.end = {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
    }
    pipe = asyncio.subprocess.PIPE
    kubectl = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(20):
        output, errors = await kubectl.communicate(b"hello")
    assert (output, kubectl.returncode) == (b"HELLO", 3), errors


async def test_exec_is_only_offered_over_websockets(api, node):
    answer = await api.create(f"{PODS}/worker/exec?command=true", {})
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert "SPDY is not" in answer.body["message"]
    # kubectl tries SPDY after any refusal, and shows what that is told.
    wrong = await api.create(f"{PODS}/worker/exec?command=true&container=nobody", {})
    assert "container nobody is not valid" in wrong.body["message"]


async def test_a_pod_without_a_node_has_no_log(api):
    spec = {"containers": [{"name": "main", "image": "i"}]}
    await api.create(PODS, {"metadata": {"name": "worker"}, "spec": spec})
    answer = await api.get(f"{PODS}/worker/log")
    assert (answer.code, answer.body["message"]) == (400, "pod worker does not have a host assigned")


async def test_a_node_that_cannot_be_reached_is_named(api, node):
    status = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}
    await api.merge("/api/v1/nodes/node-0/status", {"status": status})
    answer = await api.get(f"{PODS}/worker/log")
    assert (answer.code, answer.body["reason"]) == (503, "ServiceUnavailable")
