"""`python -m devcluster.binaries [control-plane] [node] [bench] [deploy] [queues]`: build what is missing of these."""

import argparse
import sys
import time

from devcluster.binaries import SETS, MissingProgram, build, find


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m devcluster.binaries", description=__doc__)
    parser.add_argument("sets", nargs="*", default=["control-plane"], metavar="|".join(SETS))
    wanted = parser.parse_args().sets
    if unknown := set(wanted) - set(SETS):
        parser.error(f"{', '.join(sorted(unknown))}: none of {', '.join(SETS)}")
    try:
        for program in (program for name in wanted for program in SETS[name]):
            _have(program)
    except MissingProgram as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _have(program: str) -> None:
    try:
        find(program)
    except MissingProgram:
        began = time.monotonic()
        print(f"building {program}; the first build takes minutes", flush=True)
        path = build(program)
        print(f"built {path} in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
