"""The release after this one, as a folder that processes run from: this tree, and what a release may bring.

A field of a definition, a field of an event, a type of event that this release does not know, and a version.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = "99.0.0"
FIELD = "note"
"""Of a TrainingJob's spec, and of `JobCreated`."""
EVENT = "JobNoted"

EDITS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "shared/frameworks/training_job.py": (
        ("    suspend = flag(", f"    {FIELD} = model.text()\n    suspend = flag("),
        (
            "from shared.frameworks.reading import",
            "from shared.frameworks import model\nfrom shared.frameworks.reading import",
        ),
    ),
    "shared/job/events/status.py": (
        ("import Decided\n", "import Decided, Event\n"),
        (
            '    """The job is admitted."""\n',
            f'    """The job is admitted."""\n\n    {FIELD}: str = "of the next release"\n',
        ),
        (
            "Decision = (\n",
            f'class {EVENT}(Event, frozen=True, tag="{EVENT}"):\n    """Something new."""\n\n\nDecision = (\n',
        ),
    ),
    "shared/job/events/catalog.py": (
        ("Fact = LogCreated", f"Fact = status.{EVENT} | LogCreated"),
        ("*get_args(status.Decision)", f"status.{EVENT}, *get_args(status.Decision)"),
    ),
    "shared/job/evolve.py": (
        (
            "        case watcher.DisruptionNoticed():\n",
            f"        case status.{EVENT}():\n            return job\n        case watcher.DisruptionNoticed():\n",
        ),
    ),
}


def next_release(folder: Path) -> dict[str, str]:
    """Write it; the environment that makes `python -m` run it."""
    for package in ("services", "shared", "muster", "devcluster"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, edits in EDITS.items():
        text = (folder / name).read_text()
        for old, new in edits:
            assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
            text = text.replace(old, new)
        (folder / name).write_text(text)
    metadata = folder / f"muster-{VERSION}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: muster\nVersion: {VERSION}\n")
    # Without safety the working directory, which is this tree, would come first.
    return {"PYTHONPATH": f"{folder}:{folder / 'devcluster'}", "PYTHONSAFEPATH": "1"}
