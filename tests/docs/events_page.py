"""The page for those who subscribe: the contract, examples that `tests/subscribers/test_page.py` runs, and all types.

Pure, but for `make pages`, which writes `docs/events.md`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from muster.schemas import CONTRACT, KINDS, summary
from shared.eventlog.account import MAX_ACK_PENDING, MAX_CONNECTIONS, MAX_CONSUMERS
from shared.eventlog.subscribers import INACTIVE_SECONDS
from shared.job.events.catalog import AUTHORS, FACTS
from shared.job.events.event import Author

PAGE = """\
# Events for your programs

A program follows the events of jobs with any NATS client, by this contract, version {contract}.

## Connect

A program reads a copy of the stream `JOBS` on a server of its own, so that nothing reaches the log's server. Set
`NATS_URL` (of the copies' server), `NATS_USER` and `NATS_PASSWORD`.
`subscriber-team-a` reads the namespace `team-a` alone; `subscriber` reads all, for administrators.

### For one namespace

Beside `muster run --nats embedded` or the demo:

```
muster subscriber add team-a --data .muster
muster subscriber list --data .muster
muster subscriber remove team-a --data .muster
```

`--size BYTES` is the size of the copy (256 MiB).
In the chart: `setup.subscriberNamespaces` (`team-a: 268435456`); the password is in the Secret
`muster-nats-subscriber-team-a`, `NATS_URL` is `tls://muster-nats-copies.muster.svc:4222`.
A change restarts the copies' server; the first subscriber the log's, too. Before taking a namespace out, run `muster
subscriber remove` as administrator.
Beside your own NATS: a second one with the chart's configuration (`helm template … --set
setup.subscriberNamespaces.team-a=268435456 --show-only templates/nats-copies.yaml`), a `leafnodes` listener for yours,
and `muster subscriber add team-a` as administrator of the log.
With Compose: `docker compose --profile copies up --detach`, then `muster setup --subscribers BYTES`; port 4223.

### For all namespaces

```sh
muster setup --subscribers 10000000000
```

In the chart: `setup.subscribers`, and the Secret `muster-nats-subscriber`.

### Both

- The disk of the copies (`nats.copies.size`) also holds one of the whole log. A full copy loses its oldest events.
  Copies need NATS 2.14.
- After the log was restored, the same command makes the copy anew. Keep the log's identity (`ce-source` before the
  `#`) beside your position: at another one, or above the last sequence, begin at 0.
- A copy has at most {consumers} consumers; one that is unused for {days} days, or its `inactive_threshold`, is removed.
- A user has at most {connections} connections. One that leaves 8 MB unread is closed: pull, or use flow control.
- A consumer has at most {pending} events that were not acknowledged (`max_ack_pending`).
- Push consumers send to subjects under `_INBOX.`.

## Read

[In order](../examples/events/ordered.py), from behind a position that the program keeps; 0 is the first event.

With a durable consumer:
[in Python](../examples/events/durable.py), [in Go](../examples/events/durable.go).

On the command line:

```sh
nats sub 'jobs.team-a.>' --stream=JOBS --all --count=4
nats sub 'jobs.team-a.>' --stream=JOBS --start-sequence=3 --count=3
nats stream view JOBS 10 --subject='jobs.team-a.>'
nats consumer add JOBS reports --pull --defaults --filter='jobs.team-a.>' --deliver=all --ack=explicit
nats consumer next JOBS reports --count=4
nats consumer rm JOBS reports --force
```

## Subjects

`FAMILY.NAMESPACE.NAME.UID.AUTHOR.TYPE`: `jobs.team-a.resnet.7f3c….scheduler.SlotsAssigned`.
The family is `facts` for what was seen, `jobs` for what was decided. A dot in a name is an underscore.
The uid is `none` for a scale request without a job; it goes on under the job's uid after `ScaleRequestGone` (`Bound`).

`*.team-a.>` is a namespace, `*.team-a.resnet.>` a job, `*.*.*.*.*.JobFailed` a type, `jobs.>` all decisions.

## What is in a message

The body is JSON by the [schema](schemas/events.json) of its type; the headers are CloudEvents 1.0 in NATS' binding. The
[AsyncAPI document](schemas/asyncapi.json) describes both. Ignore other headers.

- `ce-id`: unique in the log
- `ce-type`: `dev.muster.SlotsAssigned`
- `ce-source`: the log's identity and the author, `urn:uuid:LOG#scheduler`
- `ce-time`: by the author's clock, `2026-01-01T00:00:00.000Z`
- `ce-specversion`: `1.0`

## The promise

- **Order.** The stream's sequence orders all events; times do not. An event comes after those that made it.
- **Duplicates.** An event is delivered at least once. In order: skip sequences up to your position. A durable consumer
  sends unacknowledged ones again, behind later ones.
- **Gaps.** Sequences of one job are not consecutive; `>` of the user `subscriber` sees every number.
- **Delay.** More than 3 s (in nanoseconds) in `mirror.active` of the stream's information: the copy is not fed, and
  `muster doctor` says why.
- **Evolution.** Types, fields and words are added; none is renamed, retyped, removed or given another meaning. Ignore
  what you do not know.
- **Retention.** A copy keeps what it has room for, and lacks a job that [left the log](log.md) while it was away;
  after a day, its seal, too.
- **Losses.** Below `state.first_seq` of the stream's information nothing comes any more. At a `JobSealed` compare its
  `count` with the sum of `state.subjects` for `{{"subjects_filter": "*.NAMESPACE.NAME.UID.*.*"}}`, without the seal and
  `ChangeAttributed`: fewer are missing, and `muster history` has them.

## All types

F marks facts; each schema has an example. The fields `because`, `of`, `anchor` and `sequence` are sequences of the
stream.

- A job's phase is the last event of `status`, without `Job`.
- `request` is the `uid` of a `ScaleRequested`, which alone has the request's name, and comes again once the request
  has an owner.
- kubectl shows a rejected request as `ScaleFailed`.
- After `EventDisowned`, the event at its `sequence` no longer counts.

{types}
"""


def page() -> str:
    """`docs/events.md`."""
    return PAGE.format(
        contract=CONTRACT,
        connections=MAX_CONNECTIONS,
        pending=MAX_ACK_PENDING,
        consumers=MAX_CONSUMERS,
        days=INACTIVE_SECONDS // 86_400,
        types="\n\n".join("\n".join(_of(authors)) for authors in dict.fromkeys(map(_authors, KINDS.values()))),
    )


def _of(authors: tuple[Author, ...]) -> Iterator[str]:
    """The types that these authors write, and no other."""
    yield f"### {', '.join(authors)}\n"
    for tag, kind in KINDS.items():
        if _authors(kind) == authors:
            fact = " F" if kind in FACTS else ""
            yield f"- [`{tag}`](schemas/{tag}.json){fact}: {summary(tag)}"


def _authors(kind: type) -> tuple[Author, ...]:
    return tuple(author for author in get_args(Author) if author in AUTHORS[kind])


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "events.md").write_text(page())


if __name__ == "__main__":
    main()
