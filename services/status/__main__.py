"""`python -m services.status`: the status as a process."""

from services.status.shell import build
from shared.service.main import main

if __name__ == "__main__":
    main("status", build)
