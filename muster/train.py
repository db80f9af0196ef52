"""What a training loop says of itself, in three lines; the standard library alone, so that the file can be copied.

    from muster.train import report
    for step in range(1, steps + 1):
        ...
        report(step, steps, loss=loss)

It goes where Kubeflow Trainer's own client and `transformers` report (`KUBEFLOW_TRAINER_SERVER_URL`), from the process
of rank 0, in a thread of its own, at most every five seconds.  Without a port, and while it is away, nothing happens:
training goes on.
"""

import atexit
import json
import os
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

FOLDER = Path("/var/run/secrets/muster/progress")
"""Where a pod has the files; a process that ssh starts has none of the variables."""

SECONDS = 5.0
"""The fewest seconds between two reports."""

TIMEOUT_SECONDS = 5.0

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "HOROVOD_RANK", "JAX_PROCESS_ID", "SLURM_PROCID")


class _Sender:
    """Sends the newest report, and before the first one that the program begins."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._urgent = False
        self._busy = False

    def give(self, *bodies: bytes, urgent: bool) -> None:
        """Send these, in the place of the newest one that waits."""
        with self._changed:
            self._waiting[-1:] = bodies
            self._urgent = self._urgent or urgent
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Send what waits, and wait for that."""
        with self._changed:
            self._urgent = bool(self._waiting)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._waiting or self._busy), timeout=TIMEOUT_SECONDS)

    def _run(self) -> None:
        last = -SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                self._changed.wait_for(lambda: self._urgent, timeout=max(0.0, last + SECONDS - time.monotonic()))
                body, self._busy = self._waiting.pop(0), True
                self._urgent = self._urgent and bool(self._waiting)
            last = time.monotonic()
            # No report is worth a training.
            with suppress(Exception):
                _send(body)
            with self._changed:
                self._busy = False
                self._changed.notify_all()


def _send(body: bytes) -> None:
    # Read anew each time: the kubelet renews the token, and the authority may change.
    token = Path(os.environ.get("KUBEFLOW_TRAINER_SERVER_TOKEN") or FOLDER / "token").read_text().strip()
    authority = os.environ.get("KUBEFLOW_TRAINER_SERVER_CA_CERT") or str(FOLDER / "ca.crt")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = Request(_url(), data=body, headers=headers, method="POST")  # noqa: S310  https, from the pod
    with urlopen(request, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context(cafile=authority)):  # noqa: S310
        pass


def _url() -> str:
    if url := os.environ.get("KUBEFLOW_TRAINER_SERVER_URL"):
        return url
    try:
        return (FOLDER / "url").read_text().strip()
    except OSError:
        return ""


_sender = _Sender()
_began = False


def report(step: int, total: int | None = None, *, checkpoint: int | None = None, **metrics: Any) -> None:
    """Say that `step` is done, of `total`; `checkpoint` is the newest step that a checkpoint has.  Never raises.

    `metrics` are numbers or short texts, at most 16.  The end of the program waits for the last report, five seconds at
    most.
    """
    global _began  # noqa: PLW0603  one training a process
    environment = os.environ.copy()
    if any(environment.get(name, "0") != "0" for name in _RANKS) or not _url():
        return
    said: dict[str, int] = {}
    if total:
        said["progressPercentage"] = max(0, min(100, 100 * step // total))
    more = {"current_step": step, "total_steps": total, "checkpoint_step": checkpoint}
    known = {name: value for name, value in more.items() if value is not None}
    # A new process may be behind an earlier one.
    begins = [] if _began else [_body({"progressPercentage": 0}, {})]
    _sender.give(*begins, _body(said, {**known, **metrics}), urgent=not _began)
    if not _began:
        _began = True
        atexit.register(_sender.flush)


def _body(said: dict[str, int], metrics: dict[str, Any]) -> bytes:
    values = [{"name": str(name)[:64], "value": str(value)[:64]} for name, value in metrics.items()]
    return json.dumps({"trainerStatus": {**said, "metrics": values}}).encode()
