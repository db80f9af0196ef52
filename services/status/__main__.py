"""`muster-status`, or `python -m services.status`: the status as a process."""

from services.status.shell import build
from shared.process.main import main


def run() -> None:
    main("status", build)


if __name__ == "__main__":
    run()
