"""`muster-scheduler`, or `python -m services.scheduler`: the scheduler as a process."""

from services.scheduler.shell import build
from shared.process.main import main


def run() -> None:
    main("scheduler", build)


if __name__ == "__main__":
    run()
