"""`muster-watcher`, or `python -m services.watcher`: the watcher as a process."""

from services.watcher.shell import build
from shared.process.main import main


def run() -> None:
    main("watcher", build)


if __name__ == "__main__":
    run()
