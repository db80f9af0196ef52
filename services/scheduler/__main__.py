"""`python -m services.scheduler`: the scheduler as a process."""

from services.scheduler.shell import build
from shared.service.main import main

if __name__ == "__main__":
    main("scheduler", build)
