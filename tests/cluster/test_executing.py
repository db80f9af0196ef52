"""Commands in pods against a server that plays faults."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from shared.cluster import Execution
from shared.cluster.calls import Timeouts
from shared.cluster.kube import KubeCluster
from shared.errors import Conflict, Refused, Transient, Trouble
from tests.kit.apiserver import Answer, ScriptedApiServer, channels, html, never, status, write_kubeconfig
from tests.kit.watching import PATIENCE

SUCCESS = b'\x03{"metadata":{},"status":"Success"}'
OCI = (
    "error executing command in container: failed to start exec: OCI runtime exec failed: exec failed: unable to start"
)


def an_end(reason: str, message: str = "", *causes: dict[str, str], said: str = "Failure") -> bytes:
    """The last message of the error channel."""
    end = {"metadata": {}, "status": said, "reason": reason, "message": message, "details": {"causes": causes}}
    return b"\x03" + json.dumps(end).encode()


def an_exit(code: str) -> bytes:
    return an_end("NonZeroExitCode", "command terminated", {"reason": "ExitCode", "message": code})


def a_text(code: int, text: str) -> Answer:
    """What a kubelet says, as the API server hands it on."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text=text)

    return answer


async def run(cluster: KubeCluster, **given: Any) -> Execution:
    return await cluster.execute("team-a", "p", "main", ["sh", "-c", "echo a;b"], **{"timeout": PATIENCE, **given})


async def refused(cluster: KubeCluster, **given: Any) -> Trouble:
    with pytest.raises(Trouble) as caught:
        await run(cluster, **given)
    return caught.value


async def test_the_command_goes_as_it_is_and_asks_for_the_output_alone(
    cluster: KubeCluster, server: ScriptedApiServer
) -> None:
    commands: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        commands.extend(request.query.getall("command"))
        return await channels(SUCCESS)(request)

    server.answers.append(answer)
    assert await run(cluster) == Execution(0, b"")
    (asked,) = server.asked
    assert asked.path == "/api/v1/namespaces/team-a/pods/p/exec"
    assert commands == ["sh", "-c", "echo a;b"]
    assert {**asked.query, "command": ""} == {"command": "", "container": "main", "stdout": "true"}
    assert asked.headers["Authorization"] == "Bearer first"
    assert asked.headers["Accept"] == "*/*", "the kubelet serves no other client"


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
@pytest.mark.parametrize(
    ("messages", "execution"),
    [
        pytest.param([SUCCESS], Execution(0, b""), id="success without a word"),
        pytest.param([b"\x01a", b"\x01b\n", SUCCESS], Execution(0, b"ab\n"), id="output in pieces"),
        pytest.param([b"\x01a", an_exit("7")], Execution(7, b"a"), id="an exit code"),
        pytest.param([SUCCESS, b"\x01late"], Execution(0, b"late"), id="output behind the end"),
        pytest.param([b"\x01", b"\x02", b"\x03", b"", SUCCESS], Execution(0, b""), id="empty messages"),
        pytest.param([SUCCESS[:9], b"\x03" + SUCCESS[9:]], Execution(0, b""), id="an end in pieces"),
        pytest.param([b"\x02no", b"\xff\x01", b"\x09?", SUCCESS], Execution(0, b""), id="channels of no concern"),
    ],
)
async def test_what_comes_becomes_an_output_and_a_code(
    cluster: KubeCluster, server: ScriptedApiServer, protocol: str, messages: list[bytes], execution: Execution
) -> None:
    server.answers.append(channels(*messages, protocol=protocol))
    assert await run(cluster) == execution


async def test_output_beyond_the_bound_is_dropped(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    server.answers.append(channels(*[b"\x01" + b"x" * 50_000] * 100, an_exit("3")))
    assert await run(cluster, most=70_000) == Execution(3, b"x" * 70_000)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(channels(b"\x01a", an_exit("3"), cut=True), id="a connection that is cut"),
        pytest.param(channels(b"\x01a", an_exit("3"), hang=True), id="a connection that stays open"),
    ],
)
async def test_an_end_that_was_told_counts_however_the_connection_ends(
    cluster: KubeCluster, server: ScriptedApiServer, answer: Answer
) -> None:
    server.answers.append(answer)
    assert await run(cluster, timeout=1.5) == Execution(3, b"a")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(channels(b"\x01a", cut=True), "connection was lost", id="cut in the middle"),
        pytest.param(channels(b"\x01a"), "connection was lost", id="closed without an end"),
        pytest.param(channels(b"\x01a", hang=True), "timed out", id="silence after some output"),
        pytest.param(never(), "timed out", id="no answer at all"),
        pytest.param(channels(b"\x03<html>"), "is malformed: <html>", id="an end that is no JSON"),
        pytest.param(channels(b"\x03[1]"), "is malformed", id="an end that is no Status"),
        pytest.param(channels(b"\x03{}"), "is malformed", id="an end that says nothing"),
        pytest.param(channels(an_exit("many")), "is malformed", id="a code that is no number"),
        pytest.param(channels(b"\x03" + b"x" * 500_000), "is malformed", id="an end without end"),
        pytest.param(
            channels(an_end("InternalError", "failed while waiting for exec")), "waiting", id="a runtime that lost it"
        ),
        pytest.param(
            channels(b"\x01a", an_end("InternalError", OCI)), "OCI", id="a refusal of what had already written"
        ),
        pytest.param(html(502), "502", id="a proxy that lost it"),
        pytest.param(html(504), "504", id="a proxy without patience"),
        pytest.param(html(200), "", id="a proxy that knows no WebSockets"),
    ],
)
async def test_what_may_have_run_is_transient(
    cluster: KubeCluster, server: ScriptedApiServer, answer: Answer, words: str
) -> None:
    server.answers.append(answer)
    trouble = await refused(cluster, timeout=0.3 if words == "timed out" else PATIENCE)
    assert isinstance(trouble, Transient)
    assert words in str(trouble)
    assert len(str(trouble)) < 500
    assert len(server.asked) == 1, "nothing is tried twice"


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        pytest.param(status(403, "Forbidden", name="p"), "Forbidden", "no", id="no right"),
        pytest.param(status(404, "NotFound", name="p"), "NotFound", "no", id="no pod"),
        pytest.param(status(400, "BadRequest", "no container x"), "BadRequest", "container x", id="no container"),
        pytest.param(a_text(404, "pod does not exist"), "NotFound", "does not exist", id="not yet at the kubelet"),
        pytest.param(a_text(500, 'container not found ("main")'), "CannotExecute", "container not", id="not running"),
        pytest.param(status(500, "InternalError", "error dialing"), "InternalError", "dialing", id="no kubelet"),
        pytest.param(status(429, "TooManyRequests"), "TooManyRequests", "no", id="too many"),
        pytest.param(html(503), "CannotExecute", "503", id="a proxy without a server"),
        pytest.param(channels(an_end("InternalError", OCI)), "CannotExecute", "OCI", id="no such program"),
        pytest.param(
            channels(an_end("InternalError", 'exec: "x": Permission denied')),
            "CannotExecute",
            "denied",
            id="no program",
        ),
    ],
)
async def test_what_did_not_start_is_refused(
    cluster: KubeCluster, server: ScriptedApiServer, answer: Answer, reason: str, words: str
) -> None:
    server.answers.append(answer)
    trouble = await refused(cluster)
    assert isinstance(trouble, Refused)
    assert trouble.reason == reason
    assert words in str(trouble)
    assert "execute sh in team-a/p main" in str(trouble)


SECRET = ["sh", "-c", 'exec "$@" > /dev/null', "env", "TOKEN=open ses/ame", "sh", "rescale.sh"]
AT_THE_KUBELET = (
    'error sending request: Post "https://10.0.0.7:10250/exec/team-a/p/main?command=sh&command=-c'
    "&command=exec+%22%24%40%22+%3E+%2Fdev%2Fnull&command=env&command=TOKEN%3Dopen+ses%2Fame&command=sh"
    '&command=rescale.sh&container=main&stdout=true": dial tcp 10.0.0.7:10250: connect: connection refused'
)
"""What an API server says that is itself the client of the kubelet."""


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(channels(an_end("InternalError", AT_THE_KUBELET)), id="the way to the kubelet, at the end"),
        pytest.param(status(504, "Timeout", AT_THE_KUBELET), id="the way to the kubelet, at once"),
        pytest.param(status(403, "Forbidden", f"denied: {json.dumps(SECRET)}"), id="an admission webhook"),
        pytest.param(channels(an_end("InternalError", f"command {SECRET} was lost")), id="a container runtime"),
        pytest.param(channels(b"\x03<p>TOKEN=open ses/ame</p>"), id="an end that is no Status"),
        pytest.param(
            channels(an_end("InternalError", f"{'x' * 10} TOKEN=open ses/ame {'x' * 290}")), id="a value that is cut"
        ),
    ],
)
async def test_words_about_a_command_do_not_repeat_it(
    cluster: KubeCluster, server: ScriptedApiServer, answer: Answer
) -> None:
    server.answers.append(answer)
    with pytest.raises(Trouble) as caught:
        await cluster.execute("team-a", "p", "main", SECRET, timeout=PATIENCE)
    told = f"{caught.value} {getattr(caught.value, 'words', '')}"
    assert "ame" not in told.replace("team-a", ""), "of any spelling the end"
    assert "rescale" not in told
    assert "execute sh in team-a/p main" in told


async def test_a_server_that_is_not_there_is_transient(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "nobody", "http://127.0.0.1:1", {"token": "t"})
    cluster = await KubeCluster.connect(kubeconfig)
    assert isinstance(await refused(cluster), Transient)
    await cluster.close()
    closed = await refused(cluster)
    assert isinstance(closed, Refused)
    assert closed.reason == "Closed"


async def test_a_server_that_does_not_answer_is_not_waited_for_as_long_as_the_command(
    server: ScriptedApiServer, tmp_path: Path
) -> None:
    cluster = await KubeCluster.connect(server.kubeconfig(tmp_path), timeouts=Timeouts(total=1.5))
    server.answers += [never(), channels(SUCCESS)]
    assert "timed out" in str(await refused(cluster))
    assert await run(cluster) == Execution(0, b"")
    await cluster.close()


async def test_a_token_that_is_not_accepted_is_read_again(server: ScriptedApiServer, tmp_path: Path) -> None:
    kubeconfig = server.kubeconfig(tmp_path)
    cluster = await KubeCluster.connect(kubeconfig)
    server.kubeconfig(tmp_path, {"token": "second"})
    server.answers += [status(401, "Unauthorized"), channels(SUCCESS)]
    assert await run(cluster) == Execution(0, b"")
    assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer first", "Bearer second"]
    await cluster.close()


async def test_a_token_that_stays_wrong_is_refused(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    server.answers += [status(401, "Unauthorized")] * 2
    trouble = await refused(cluster)
    assert isinstance(trouble, Refused)
    assert trouble.reason == "Unauthorized"
    assert len(server.asked) == 2


async def test_a_conflict_is_no_answer_to_a_command(cluster: KubeCluster, server: ScriptedApiServer) -> None:
    server.answers.append(status(409, "Conflict"))
    assert not isinstance(await refused(cluster), Conflict)
