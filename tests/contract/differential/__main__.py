"""Compare two servers by hand: `python -m tests.contract.differential REAL EMBEDDED [FIRST [COUNT]]`, by kubeconfig."""

import asyncio
import sys
from pathlib import Path

from tests.contract.differential.comparing import Comparison, Difference
from tests.devcluster.apiserver.client import client_of


async def main(real: Path, embedded: Path, first: int, count: int) -> int:
    async with client_of(real) as one, client_of(embedded) as other:
        found = await Comparison(one, other).seeds(range(first, first + count))
    kinds: dict[str, list[Difference]] = {}
    for difference in found:
        kinds.setdefault(difference.lines[0], []).append(difference)
    for alike in sorted(kinds.values(), key=len):
        shortest = min(alike, key=lambda difference: len(str(difference)))
        sys.stdout.write(f"{shortest}\n({len(alike)} like this)\n\n")
    sys.stdout.write(f"{count} sequences, {len(found)} differ\n")
    return 1 if found else 0


if __name__ == "__main__":
    first, count = [*map(int, sys.argv[3:]), *(0, 200)[len(sys.argv) - 3 :]]
    sys.exit(asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), first, count)))
