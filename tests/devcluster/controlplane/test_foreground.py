"""`make control-plane`: in the foreground with a kubeconfig for each user, and gone after Ctrl-C."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster import binaries
from tests.kit.controlplane import require_control_plane
from tests.kit.traces import nothing_running

pytestmark = pytest.mark.real

STOP_SECONDS = 60.0
"""Two on a quiet machine; each of the programs may take five before it is killed."""


def test_it_serves_until_ctrl_c_and_services_may_only_what_roles_say(tmp_path: Path):
    require_control_plane()
    command = [sys.executable, "-m", "devcluster", "--real", "--data", str(tmp_path), "--user", "watcher"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background job ignores Ctrl-C, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  one system call
    ) as process:
        try:
            assert process.stdout is not None
            administrator = process.stdout.readline().strip().removeprefix("export KUBECONFIG=")
            watcher = process.stdout.readline().strip().partition("KUBECONFIG=")[2]
            assert "node-0" in kubectl(administrator, "get", "nodes").stdout
            refused = kubectl(watcher, "get", "nodes")
            assert 'User "system:serviceaccount:muster:watcher" cannot list' in refused.stderr
            process.send_signal(signal.SIGINT)
            assert process.wait(STOP_SECONDS) == 0
        finally:
            process.kill()
    assert nothing_running(tmp_path) == []


def kubectl(kubeconfig: str, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [str(binaries.kubectl()), "--kubeconfig", kubeconfig, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)
