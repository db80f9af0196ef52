"""Containers as real processes: how they start, end and start again, and what the status says of it."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.devcluster.apiserver.client import BOUND
from tests.devcluster.node.kit import FOREVER, TERMINATES, condition, state


async def test_a_pod_that_ends_well_succeeded(space):
    await space.run("p", "cat greeting; exit 0")
    pod = await space.over("p")
    assert pod["status"]["phase"] == "Succeeded"
    terminated = state(pod)["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")
    assert condition(pod, "Ready")["reason"] == "PodCompleted"
    assert condition(pod, "PodScheduled")["status"] == "True"
    assert pod["status"]["containerStatuses"][0]["containerID"].startswith("process://")
    assert await space.logs("p") == "hello from the image\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param("exit 3", 3, id="its own code"),
        pytest.param("sh -c 'kill -9 $$$$'; exit $?", 137, id="that of a shell whose child was killed"),
        pytest.param("python -c 'import os; os.abort()'; exit $?", 134, id="that of a child that aborted"),
    ],
)
async def test_a_failed_pod_keeps_its_exit_code(space, command, code):
    await space.run("p", command)
    pod = await space.over("p")
    assert pod["status"]["phase"] == "Failed"
    assert (state(pod)["terminated"]["exitCode"], state(pod)["terminated"]["reason"]) == (code, "Error")


async def test_an_image_with_an_environment_of_its_own_has_the_programs_of_that_first(space):
    await space.run("own", "whoami")
    await space.run("none", "whoami", container={"image": "i"})
    await asyncio.gather(space.over("own"), space.over("none"))
    assert await space.logs("own") == "that of the image\n"
    assert await space.logs("none") == "root\n"


async def test_a_command_that_cannot_start_is_a_start_error(space):
    await space.run("p", container={"command": ["no-such-program"]})
    terminated = state(await space.over("p"))["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (128, "StartError")
    assert "no-such-program" in terminated["message"]


async def test_what_a_container_says_at_its_end_is_in_the_status(space):
    await space.run("p", "echo -n because > /dev/termination-log; exit 1")
    assert state(await space.over("p"))["terminated"]["message"] == "because"


@pytest.mark.parametrize(
    ("policy", "command", "message"),
    [
        pytest.param("FallbackToLogsOnError", "echo one; echo two >&2; exit 3", "one\ntwo\n", id="its last lines"),
        pytest.param(
            "FallbackToLogsOnError",
            "echo lost; echo -n because > /dev/termination-log; exit 3",
            "because",
            id="what it wrote itself goes first",
        ),
        pytest.param("FallbackToLogsOnError", "echo fine; exit 0", None, id="not of one that ends well"),
        pytest.param("File", "echo lost; exit 3", None, id="not without the policy"),
        pytest.param(
            "FallbackToLogsOnError",
            "seq 1 200; exit 3",
            "".join(f"{number}\n" for number in range(121, 201)),
            id="80 lines at most",
        ),
        pytest.param(
            "FallbackToLogsOnError",
            "head -c 5000 /dev/zero | tr '\\0' x; exit 3",
            "x" * 2048,
            id="2 KiB at most",
        ),
    ],
)
async def test_the_policy_for_termination_messages_is_that_of_a_kubelet(space, policy, command, message):
    await space.run("p", command, container={"terminationMessagePolicy": policy})
    assert state(await space.over("p"))["terminated"].get("message") == message


async def test_a_running_pod_is_ready_and_has_an_address(space):
    begun = time.monotonic()
    await space.run("p")
    pod = await space.ready("p")
    assert time.monotonic() - begun < BOUND / 6
    status = pod["status"]
    assert status["phase"] == "Running"
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert status["hostIP"] == "127.0.0.1"
    assert "startedAt" in state(pod)["running"]
    assert status["containerStatuses"][0]["ready"] is True


async def test_the_grace_period_belongs_to_the_container(space):
    await space.run("p", "trap 'echo asked; sleep 0.3; echo done; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    await space.logged("p", "up")
    async with space.following("p") as log:
        await space.api.delete(space.path("pods", "p"), {"gracePeriodSeconds": 20})
        assert await log.text() == "up\nasked\ndone\n"
    await space.gone("p")


async def test_a_container_that_does_not_listen_is_killed_after_its_grace_period(space):
    await space.run("p", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    await space.logged("p", "up")
    begun = time.monotonic()
    await space.api.delete(space.path("pods", "p"), {"gracePeriodSeconds": 1})
    await space.gone("p")
    assert time.monotonic() - begun >= 1


async def test_a_second_deletion_shortens_the_grace_period(space):
    await space.run("p", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    await space.logged("p", "up")
    await space.api.delete(space.path("pods", "p"), {"gracePeriodSeconds": 600})
    await space.api.delete(space.path("pods", "p"), {"gracePeriodSeconds": 1})
    await space.gone("p")


async def test_the_last_status_of_a_deleted_pod_has_its_exit_code(space):
    await space.run("p", TERMINATES.replace("exit 0", "exit 7") + FOREVER.removeprefix(TERMINATES))
    await space.logged("p", "up")
    version = (await space.api.get(space.path("pods"))).body["metadata"]["resourceVersion"]
    await space.api.delete(space.path("pods", "p"))
    codes = []
    async with asyncio.timeout(BOUND):
        async for kind, pod in space.api.watch(f"{space.path('pods')}?watch=1&resourceVersion={version}"):
            codes += [state(pod)["terminated"]["exitCode"]] if "terminated" in state(pod) else []
            if kind == "DELETED":
                break
    assert set(codes) == {7}


async def test_init_containers_run_in_order_before_the_others(space):
    add = [{"name": "d", "mountPath": "/d"}]
    init = [
        {
            "name": name,
            "image": "i",
            "command": ["sh", "-c", f"sleep 0.1; echo {name} >> /d/order"],
            "volumeMounts": add,
        }
        for name in ("one", "two")
    ]
    volumes = [{"name": "d", "emptyDir": {}}]
    await space.run("p", "cat /d/order", initContainers=init, volumes=volumes, container={"volumeMounts": add})
    pod = await space.over("p")
    assert await space.logs("p") == "one\ntwo\n"
    assert [one["ready"] for one in pod["status"]["initContainerStatuses"]] == [True, True]


async def test_a_failed_init_container_fails_the_pod(space):
    init = [{"name": "one", "image": "i", "command": ["sh", "-c", "exit 4"]}]
    await space.run("p", initContainers=init)
    pod = await space.over("p")
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert state(pod) == {"waiting": {"reason": "PodInitializing"}}
    assert condition(pod, "Initialized")["status"] == "False"


async def test_on_failure_runs_again_until_it_succeeds(space):
    command = "test -e /d/x && exit 0; touch /d/x; exit 5"
    volumes = {"volumes": [{"name": "d", "emptyDir": {}}]}
    mounts = {"volumeMounts": [{"name": "d", "mountPath": "/d"}]}
    await space.run("p", command, restartPolicy="OnFailure", container=mounts, **volumes)
    pod = await space.over("p")
    status = pod["status"]["containerStatuses"][0]
    assert (pod["status"]["phase"], status["restartCount"]) == ("Succeeded", 1)
    assert status["lastState"]["terminated"]["exitCode"] == 5


async def test_a_container_that_always_crashes_backs_off(space):
    await space.run("p", "echo run; exit 1", restartPolicy="Always")
    pod = await space.pod("p", lambda pod: state(pod).get("waiting", {}).get("reason") == "CrashLoopBackOff")
    status = pod["status"]["containerStatuses"][0]
    assert (pod["status"]["phase"], status["restartCount"]) == ("Running", 1)
    assert status["lastState"]["terminated"]["exitCode"] == 1
    await space.pod("p", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] >= 2)
    assert await space.logs("p", "previous=true") == "run\n"


async def test_several_containers_share_network_and_volumes_but_no_processes(space):
    other = {
        "name": "other",
        "image": "i",
        "command": ["python", "-m", "http.server", "8080", "--directory", "/d"],
        "volumeMounts": [{"name": "d", "mountPath": "/d", "readOnly": True}],
    }
    main = {
        "name": "main",
        "image": "i",
        "command": ["sh", "-c", "echo shared > /d/f; " + FOREVER],
        "volumeMounts": [{"name": "d", "mountPath": "/d"}],
    }
    await space.run("p", containers=[main, other], volumes=[{"name": "d", "emptyDir": {}}])
    await space.ready("p")
    fetch = (
        "until python -c \"import urllib.request as u; print(u.urlopen('http://localhost:8080/f').read())\"; do :; done"
    )
    answer = await space.exec("p", "sh", "-c", fetch + " 2>/dev/null; ps ax | grep -c [h]ttp.server")
    assert answer.out == "b'shared\\n'\n0\n"


async def test_an_image_that_is_missing_waits(space):
    await space.run("p", container={"image": "missing/thing:2"})
    await space.pod("p", lambda pod: state(pod)["waiting"]["reason"] == "ErrImagePull")
    pod = await space.pod("p", lambda pod: state(pod)["waiting"]["reason"] == "ImagePullBackOff")
    assert pod["status"]["phase"] == "Pending"
    assert condition(pod, "Ready")["status"] == "False"


async def test_a_pod_that_is_too_old_fails(space):
    # As a kubelet of 1.36: the condition comes first, and the containers' ends with the phase and its reason.
    stops = "trap 'until [ -e /run/seen ]; do sleep 0.05; done; exit 0' TERM; while :; do sleep 0.05; done"
    await space.run("p", container={"command": ["sh", "-c", stops]}, activeDeadlineSeconds=1)
    pod = await space.pod("p", lambda pod: condition(pod, "Ready").get("reason") == "PodFailed")
    assert (pod["status"]["phase"], *state(pod)) == ("Running", "running")
    await space.exec("p", "touch", "/run/seen")
    pod = await space.over("p")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert state(pod)["terminated"]["exitCode"] == 0


async def test_the_host_is_read_only_and_the_container_has_places_of_its_own(space):
    foreign = "for f in /etc/passwd /usr/x /root/x; do touch $f 2>/dev/null && echo wrote $f; done"
    own = "for f in /tmp/x /run/x /dev/shm/x /x; do touch $f && echo made; done"
    assert await space.output("p", f"{foreign}; {own}; id -u; echo $$$$") == "made\n" * 4 + "0\n1\n"
    assert not await asyncio.to_thread(Path("/x").exists)


async def test_sshd_finds_the_folder_that_it_wants(space):
    assert await space.output("p", "stat -c '%a %u' /run/sshd; ls /run") == "755 0\nsshd\n"


async def test_the_command_runs_where_it_should(space):
    assert await space.output("image", "pwd") == f"{(await space.output('pwd', 'pwd')).strip()}\n"
    assert await space.output("own", "pwd", container={"workingDir": "/usr"}) == "/usr\n"
    assert await space.output("unknown", "pwd", container={"image": "who/knows"}) == "/\n"
