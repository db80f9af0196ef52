import subprocess
from pathlib import Path

import msgspec

from services.scaler.hosts import DISCOVER_SCRIPT, hosts_config_map
from shared.frameworks.training import MOST_SLOTS, MOST_WORKERS
from shared.job.naming import DEEPSPEED_HOSTFILE, EDL_FOLDER, HOSTFILE, JobKey, Slot, Uid, WorkerName, pod_name
from shared.job.spec import WORKER
from tests.golden.compare import assert_golden

KEY = JobKey("team-a", "resnet", Uid("uid-1"))
CONFIG_MAP_BYTES = 1024 * 1024


def members(*indices: int, job: str = KEY.name) -> list[WorkerName]:
    return [pod_name(job, Slot(0, WORKER, index)) for index in indices]


def test_the_config_map_as_a_whole() -> None:
    assert_golden("hosts_config_map", hosts_config_map(KEY, members=members(0, 1, 10), slots=2, version=7))


def test_without_members_the_files_are_empty_and_the_script_stays() -> None:
    data = hosts_config_map(KEY, members=[], slots=1, version=1)["data"]
    assert (data[HOSTFILE], data[DEEPSPEED_HOSTFILE]) == ("", "")
    assert data["discover_hosts.sh"] == DISCOVER_SCRIPT


def test_the_largest_job_fits_into_a_config_map() -> None:
    job = JobKey("team-a", "a" * 50, Uid("u" * 36))
    crowd = members(*range(99_999 - MOST_WORKERS, 99_999), job=job.name)
    assert len(crowd) == MOST_WORKERS
    rendered = hosts_config_map(job, members=crowd, slots=MOST_SLOTS, version=10**9)
    assert len(msgspec.json.encode(rendered)) < CONFIG_MAP_BYTES


def test_the_discovery_script_prints_the_hostfile(tmp_path: Path) -> None:
    hostfile = hosts_config_map(KEY, members=members(0, 1), slots=2, version=1)["data"][HOSTFILE]
    (tmp_path / HOSTFILE).write_text(hostfile)
    script = tmp_path / "discover_hosts.sh"
    script.write_text(DISCOVER_SCRIPT.replace(EDL_FOLDER, str(tmp_path)))
    script.chmod(0o755)
    # An image may have a shell and nothing else.
    printed = subprocess.run([str(script)], env={"PATH": ""}, capture_output=True, text=True, check=True)
    assert printed.stdout == hostfile == "resnet-worker-0:2\nresnet-worker-1:2\n"
