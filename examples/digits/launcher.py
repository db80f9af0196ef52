"""The launcher of the digits example: trains with whatever workers there are, and says how it goes.

Runs in the launcher pod (`python launcher.py`), as Horovod's elastic driver would: it asks the hosts script every
second, forms a group of the hosts that answer, commits every step, and forms a new group when the list changes
or a worker fails. It computes no gradient itself.
"""

import argparse
import asyncio
import secrets
import signal
import sys
import time
from functools import partial
from pathlib import Path

import model
import numpy as np
import settings
from crew import Crew
from group import Commit, Group, GroupBrokenError

try:
    from muster.train import report
except ImportError:
    # An image without Muster reports nothing.
    def report(step: int, total: int | None = None, *, checkpoint: int | None = None, **metrics: str) -> None: ...


WANTED_ACCURACY = 0.95
RETRY_SECONDS = 0.1
"""Between a broken group and the next one; also how soon a first worker is noticed."""


class NoProgressError(Exception):
    """No worker was reached for too long."""


async def train(options: argparse.Namespace) -> float:
    """The accuracy on the test images after the last epoch."""
    crew = Crew(options.hosts, options.port, name=secrets.token_hex(8))
    watching = asyncio.create_task(crew.watch())
    try:
        commit = await steps(options, crew, watching)
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    if options.save:
        await asyncio.to_thread(np.save, Path(options.save), commit.parameters)
    return model.accuracy(commit.parameters, *model.load(options.seed).test)


async def steps(options: argparse.Namespace, crew: Crew, watching: asyncio.Task[None]) -> Commit:
    """All steps of all epochs. A step that breaks is taken again from the commit before it."""
    test = model.load(options.seed).test
    commit = Commit(0, *model.initial(options.seed))
    group = Group(0, (), options.patience)
    generation = 0
    trouble = ""
    progress = time.monotonic()
    say(f"waiting for workers, {options.wait:g} s at most")
    while commit.step < options.epochs * model.STEPS_PER_EPOCH:
        began = time.monotonic()
        if watching.done():
            watching.result()
        if began - progress > options.wait:
            raise NoProgressError(
                f"no step for {options.wait:g} s, giving up (listed: {crew.listed()}{trouble and '; ' + trouble})"
            )
        members = crew.members()
        try:
            if members != group.members:
                generation += 1
                group = Group(generation, members, options.patience)
                names = ",".join(member.host.name for member in members) or "none, waiting"
                say(f"group generation={generation} workers={len(members)} step={commit.step} ranks={names}")
                await group.join(commit, options.seed)
            if not members:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            # Every step is committed: the state is 58 kB, and a lost worker then costs one step.
            commit = await group.step(commit)
        except GroupBrokenError as broken:
            trouble = str(broken)
            if not group.is_left:
                say(f"group generation={generation} broke at step={commit.step}: {trouble}")
            group = Group(generation, (), options.patience)
            await asyncio.sleep(RETRY_SECONDS)
            continue
        if commit.step % model.STEPS_PER_EPOCH == 0:
            say(progress_line(commit, model.accuracy(commit.parameters, *test), workers=len(members)))
            report(commit.step, options.epochs * model.STEPS_PER_EPOCH, loss=f"{commit.loss:.4f}")
        await asyncio.sleep(began + options.epoch_seconds / model.STEPS_PER_EPOCH - time.monotonic())
        progress = time.monotonic()
    return commit


def progress_line(commit: Commit, accuracy: float, workers: int) -> str:
    epoch = commit.step // model.STEPS_PER_EPOCH
    return f"epoch={epoch} step={commit.step} loss={commit.loss:.4f} accuracy={accuracy:.4f} workers={workers}"


def say(text: str) -> None:
    print(text, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = partial(settings.add, parser)
    script = "/etc/edl/discover_hosts.sh"
    add("--hosts", "DIGITS_HOSTS", script, kind=str, text="program that prints host:slots lines")
    add("--port", "DIGITS_PORT", "9009", kind=settings.positive, text="port of every worker")
    add("--epochs", "DIGITS_EPOCHS", "30", kind=settings.positive, text="how often to see all images")
    add("--epoch-seconds", "DIGITS_EPOCH_SECONDS", "0", kind=settings.seconds, text="least time for an epoch")
    add("--wait", "DIGITS_WAIT_SECONDS", "60", kind=settings.seconds, text="give up after this time without a step")
    add("--patience", "DIGITS_PATIENCE_SECONDS", "1.5", kind=settings.seconds, text="a worker's wait for its peers")
    add("--seed", "DIGITS_SEED", "0", kind=int, text="decides split, first parameters and order of images")
    add("--save", "DIGITS_SAVE", "", kind=str, text="file for the final parameters (.npy)")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> int:
    # The first process of a container ignores SIGTERM unless it asks for it.
    training = asyncio.create_task(train(options))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, training.cancel)
    try:
        accuracy = await training
    except NoProgressError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    say(f"accuracy={accuracy:.4f}")
    return 0 if accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(run(arguments())))
