"""`muster-scaler`, or `python -m services.scaler`: the scaler as a process."""

from services.scaler.shell import build
from shared.process.main import main


def run() -> None:
    main("scaler", build)


if __name__ == "__main__":
    run()
