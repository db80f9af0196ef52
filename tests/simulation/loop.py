"""A virtual clock for several processes in one thread: each can be paused, and killed between any two callbacks.

A process is a context variable: what its tasks schedule runs in its context, and waits here while it is paused.
"""

import asyncio
import contextvars
import selectors
from collections.abc import Callable
from typing import Any


class Process:
    """The callbacks of one operating-system process; killed, it is paused for ever."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = 0
        """The number of callbacks that it has run."""
        self.dies_at: int | None = None
        """The step before which it is killed."""
        self.killed: Callable[[], None] = lambda: None
        """Called once, when it is killed at its step."""
        self.paused = False
        self.dead = False
        """True once it is killed: the end of an earlier pause does not wake it."""
        self._waiting: list[_Step] = []

    def run(self, step: "_Step") -> None:
        if self.steps == self.dies_at:
            self.kill()
            self.killed()
        if self.paused:
            self._waiting.append(step)
            return
        self.steps += 1
        step.callback(*step.args)

    def pause(self) -> None:
        self.paused = True

    def kill(self) -> None:
        """None of its callbacks runs any more."""
        self.dies_at, self.paused, self.dead = None, True, True

    def go_on(self) -> None:
        """Run the callbacks that waited, in their order, without those that were cancelled; a dead process stays."""
        if self.dead:
            return
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for step in waiting:
            step.again()


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("PROCESS", default=None)


class _Step:
    """One callback of a process."""

    __slots__ = ("again", "args", "callback", "handle", "process")

    def __init__(
        self, process: Process, callback: Callable[..., object], args: tuple[Any, ...], again: Callable[[], object]
    ) -> None:
        self.process = process
        self.again = again
        """Puts this step, and no other, among what is ready."""
        self.callback = callback
        self.args = args
        self.handle: asyncio.Handle

    def __call__(self) -> None:
        # What was cancelled while its process was paused is still called.
        if not self.handle.cancelled():
            self.process.run(self)


class _Clock(selectors.SelectSelector):
    """Where a loop would sleep, the clock goes on; nothing comes from outside of the simulation."""

    now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the simulation hangs: no timer is left, and every task waits")
        if timeout > 0:
            self.now += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop without waiting and without threads."""

    def __init__(self) -> None:
        self._virtual = _Clock()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        ready = super().call_soon
        step = _Step(process, callback, args, lambda: ready(step, context=context))
        step.handle = handle = ready(step, context=context)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        ready = super().call_soon
        step = _Step(process, callback, args, lambda: ready(step, context=context))
        step.handle = handle = super().call_at(when, step, context=context)
        return handle

    def run_in_executor(self, *_: object) -> Any:
        raise RuntimeError("a thread in the simulation: what it does is in no order")


def outside() -> contextvars.Context:
    """A context that belongs to no process: for what the network, the servers and the users do."""
    context = contextvars.copy_context()
    context.run(PROCESS.set, None)
    return context
