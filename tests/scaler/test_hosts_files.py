import subprocess
from pathlib import Path
from typing import Any

import msgspec

from services.scaler.core.membership import hosts_config_map
from shared.frameworks.reading import MOST_SLOTS, MOST_WORKERS
from shared.frameworks.training_job import DISCOVER_SCRIPT, TRAININGJOB
from shared.job.naming import DEEPSPEED_HOSTFILE, EDL_FOLDER, HOSTFILE, JobKey, Slot, Uid, WorkerName, pod_name
from shared.job.spec import WORKER
from tests.golden.compare import assert_golden
from tests.kit.builders import a_spec

KEY = JobKey("team-a", "resnet", Uid("uid-1"))
CONFIG_MAP_BYTES = 1024 * 1024


def members(*indices: int, job: str = KEY.name) -> list[WorkerName]:
    return [pod_name(job, Slot(0, WORKER, index)) for index in indices]


def rendered(members: list[WorkerName], *, key: JobKey = KEY, slots: int = 1, version: int = 1) -> dict[str, Any]:
    return hosts_config_map(TRAININGJOB, key, a_spec(slots_per_worker=slots), members=members, version=version)


def test_the_config_map_as_a_whole() -> None:
    assert_golden("hosts_config_map", rendered(members(0, 1, 10), slots=2, version=7))


def test_without_members_the_files_are_empty_and_the_script_stays() -> None:
    data = rendered([])["data"]
    assert (data[HOSTFILE], data[DEEPSPEED_HOSTFILE]) == ("", "")
    assert data["discover_hosts.sh"] == DISCOVER_SCRIPT


def test_the_largest_job_fits_into_a_config_map() -> None:
    job = JobKey("team-a", "a" * 50, Uid("u" * 36))
    crowd = members(*range(99_999 - MOST_WORKERS, 99_999), job=job.name)
    assert len(crowd) == MOST_WORKERS
    config_map = rendered(crowd, key=job, slots=MOST_SLOTS, version=10**9)
    assert len(msgspec.json.encode(config_map)) < CONFIG_MAP_BYTES


def test_the_discovery_script_prints_the_hostfile(tmp_path: Path) -> None:
    hostfile = rendered(members(0, 1), slots=2)["data"][HOSTFILE]
    (tmp_path / HOSTFILE).write_text(hostfile)
    script = tmp_path / "discover_hosts.sh"
    script.write_text(DISCOVER_SCRIPT.replace(EDL_FOLDER, str(tmp_path)))
    script.chmod(0o755)
    # An image may have a shell and nothing else.
    printed = subprocess.run([str(script)], env={"PATH": ""}, capture_output=True, text=True, check=True)
    assert printed.stdout == hostfile == "resnet-worker-0:2\nresnet-worker-1:2\n"
