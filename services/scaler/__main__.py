"""`python -m services.scaler`: the scaler as a process."""

from services.scaler.shell import build
from shared.service.main import main

if __name__ == "__main__":
    main("scaler", build)
