"""One target under atheris, in a process of its own, which libFuzzer ends: `python -m tests.fuzz.guided TARGET FOLDER`.

What follows the folder of the corpus are options of libFuzzer.
"""

import logging
import sys
from pathlib import Path
from random import Random

import atheris  # type: ignore[import-not-found]  # beside the environment, see the Makefile
import structlog

with atheris.instrument_imports(include=["shared", "services", "muster"]):
    from tests.fuzz.corpus import seeds
    from tests.fuzz.mutation import mutated
    from tests.fuzz.targets import TARGETS


def main(name: str, folder: Path, *options: str) -> None:
    corpus, target = seeds(name), TARGETS[name]
    for number, data in enumerate(corpus):
        (folder / f"seed-{number:04d}").write_bytes(data)

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        chance = Random(seed)
        changed = mutated(data, chance, corpus) if chance.random() < 0.5 else atheris.Mutate(data, longest)
        return bytes(changed[:longest])

    # A line for each object that is passed over would take longer than the reading.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    atheris.Setup([sys.argv[0], *options, str(folder)], target.try_on, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
