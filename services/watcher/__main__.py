"""`python -m services.watcher`: the watcher as a process."""

from services.watcher.shell import build
from shared.service.main import main

if __name__ == "__main__":
    main("watcher", build)
