"""A group of workers that take steps together, from its forming until one of them fails or the list changes.

A group never changes. Another list, or a failure, is another group with the next generation number, and it
starts from the last commit; so a step is either done by all of a group or not done at all.
"""

import asyncio
from dataclasses import dataclass

import numpy as np
from crew import LEAVING, Session, SessionLostError
from model import Vector
from wire import Message

ANSWER_SECONDS = 0.5
"""How much longer the launcher waits than the workers: they can then say who is missing, and stay."""


class GroupBrokenError(Exception):
    """The group could not take this step; the commit before it is still good."""


@dataclass(frozen=True)
class Commit:
    """What a lost worker cannot take away: parameters and velocity after `step` steps."""

    step: int
    parameters: Vector
    velocity: Vector
    loss: float = float("nan")


@dataclass(frozen=True)
class Group:
    generation: int
    members: tuple[Session, ...]
    patience: float

    @property
    def is_left(self) -> bool:
        """Has a member said goodbye? Its neighbours then fail, which is no news."""
        return any(member.lost == LEAVING for member in self.members)

    async def join(self, commit: Commit, seed: int) -> None:
        """Give everyone a rank, the ring's addresses and the commit to start from."""
        common = {
            "seed": seed,
            # The addresses through which we reach them: peers need no names, and cannot resolve another one.
            "ring": [member.address for member in self.members],
            "shares": [member.host.slots for member in self.members],
        }
        state = np.concatenate([commit.parameters, commit.velocity])
        questions = [self._question("join", state, rank=rank, **common) for rank in range(len(self.members))]
        await self._ask_all(questions)

    async def step(self, commit: Commit) -> Commit:
        """One global batch: the commit after it, which all members agree upon."""
        question = self._question("step", step=commit.step)
        answers = await self._ask_all([question] * len(self.members))
        # Every member updates its own replica. Should two ever differ, the mean of their gradients means nothing.
        if len({answer["digest"] for answer in answers}) > 1:
            raise GroupBrokenError("the replicas are not equal")
        parameters, velocity = np.split(answers[0].vector, 2)
        return Commit(commit.step + 1, parameters, velocity, answers[0]["loss"])

    def _question(self, kind: str, vector: Vector | None = None, **fields: object) -> Message:
        fields |= {"generation": self.generation, "patience": self.patience}
        return Message(kind, fields) if vector is None else Message(kind, fields, vector)

    async def _ask_all(self, questions: list[Message]) -> list[Message]:
        """Everyone's answer. All are waited for, so that none is still busy with this when the next group forms."""
        seconds = self.patience + ANSWER_SECONDS
        asked = zip(self.members, questions, strict=True)
        results = await asyncio.gather(
            *(_answer(member, question, seconds) for member, question in asked),
        )
        troubles = [result for result in results if isinstance(result, str)]
        if troubles:
            raise GroupBrokenError("; ".join(troubles))
        return [result for result in results if isinstance(result, Message)]


async def _answer(member: Session, question: Message, seconds: float) -> Message | str:
    """The answer, or in words why there is none."""
    try:
        answer = await member.ask(question, seconds)
    except SessionLostError as lost:
        return str(lost)
    if answer.kind == "failed":
        return f"{member.host.name}: {answer['reason']}"
    return answer
