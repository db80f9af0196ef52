"""`make test-determinism`: every history in a folder, under eight hash seeds and every Python of `pythons.py`.

    python -m tests.determinism FOLDER

Histories come into the folder from tests that run with MUSTER_HISTORIES=FOLDER; those of releases are always there.
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.determinism.processes import SEEDS, Process, compare, whole
from tests.determinism.pythons import MINORS, environment
from tests.histories.recorded import recordings
from tests.kit.histories import write

RELEASES = ("0.1.0",)


def main(folder: Path) -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        for release in RELEASES:
            for number, recording in enumerate(recordings(release)):
                write(recording.events(), Path(place) / "releases", f"{release}-{number}")
        kept = [file.absolute() for file in folder.iterdir()]
        files = whole([*kept, *(Path(place) / "releases").iterdir()])
        print(
            f"{len(kept)} histories of tests; with those of releases and without repetitions {len(files)}", flush=True
        )
        processes: list[Process] = []
        for minor in MINORS:
            python = environment(minor)
            if python is None:
                print(f"Python 3.{minor}: skipped, it is not installed", flush=True)
                continue
            processes += [Process(python, seed) for seed in SEEDS]
        outcome = compare(files, processes, Path(place))
    for told in outcome.differences:
        print(told)
    seconds = time.monotonic() - begun
    print(
        f"{outcome.prefixes} prefixes of {outcome.histories} histories in {len(processes)} processes: "
        f"{len(outcome.differences)} processes differ from the first ({seconds:.0f} s)"
    )
    return 1 if outcome.differences or not kept else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
