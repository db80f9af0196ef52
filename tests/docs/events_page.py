"""The page for those who subscribe: the contract, examples that `tests/subscribers/test_page.py` runs, and all types.

Pure, but for `make pages`, which writes `docs/events.md`.
"""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec

from muster.schemas import CONTRACT, KINDS, summary
from shared.eventlog.account import MAX_CONSUMERS
from shared.eventlog.subscribers import INACTIVE_SECONDS
from shared.job.events.catalog import AUTHORS, FACTS
from shared.job.events.event import Author
from tests.docs.schemas import RELEASED
from tests.job.examples import EXAMPLES

NEXT = "0.2"
"""The release of types that no released schema has."""

PAGE = """\
# Events for your programs

Everything that happens to a job is an event in the log, and stays there.
A program follows the events with any client of NATS JetStream; this page is the contract with it, version {contract}.
It is written by `make pages` from the models of the events and `tests/docs/events_page.py`.

## Connect

A program reads a copy of the log, the stream `JOBS`, as one of these users at NATS:

| user | reads |
| --- | --- |
| `subscriber-team-a` | the events of the namespace `team-a` |
| `subscriber` | the events of all namespaces; for administrators |

Set `NATS_URL`, `NATS_USER` and `NATS_PASSWORD` for the examples below.

### For one namespace

While `muster run --nats embedded` or the demo runs, a command makes the user and its copy, and prints the three (the
demo shows the command with its own folder; the user `reader` that it shows too is no subscriber):

```
muster subscriber add team-a --data .muster
muster subscriber list --data .muster
muster subscriber remove team-a --data .muster
```

`--size BYTES` is the size of the copy, 256 MiB without it.
In the chart `setup.subscriberNamespaces` has a size for each namespace, such as `team-a: 268435456`.
The password is in the Secret `muster-nats-subscriber-team-a`, and `NATS_URL` is that of the
[installation](install.md#from-outside).
A change of the list restarts NATS; the services wait meanwhile.
Before you take a namespace out, run `muster subscriber remove` as the administrator: else its copy stays on the disk.
For a NATS of your own, take the accounts from the chart
(`helm template … --set setup.subscriberNamespaces.team-a=268435456 --show-only templates/nats-config.yaml`), and run
`muster subscriber add team-a` as the administrator.

The user sees its copy and nothing else: no event, subject, consumer or name of another namespace.
The sequences are those of the whole log, so that a program can tell how many events others have, and not which.
Heads and leases are not in a copy.

### For all namespaces

```sh
muster setup --subscribers 10000000000
```

In the chart `setup.subscribers` is this number of bytes, and the password is in the Secret `muster-nats-subscriber`.

### Both

A copy has its room beside the log on the same disk: a size that does not fit is refused.
When a copy is full, its oldest events leave it.
Another number changes the size.
After the log was restored or made anew, the same command makes the copy anew; subscribers then read from its beginning.
A program that keeps its own position keeps the log's identity with it (`ce-source` before the `#`).
If another identity comes, or the position is above the last sequence of the stream, it begins at 0; else it would wait
for ever.
Copies need NATS 2.14 or newer.

Users cannot write; they make consumers, at most {consumers} at a time for each copy.
All programs with one user share its consumers, and may remove each other's.
A consumer that no program uses for {days} days is removed, a durable one too.
So give consumers that are used once an `inactive_threshold` of their own; a user whose copy has no room for more
removes some (`nats consumer rm`).
With push consumers that disturb the feed of its copy a program can slow the log down; no event is lost by that.
A push consumer sends to subjects that begin with `_INBOX.`, as clients choose them by default.

## Read

Every event of the namespace `team-a`, from the first on, in order, and then those to come; the server forgets this
program's consumer five minutes after its end:

```python
import asyncio
import os

import nats
from nats.js.api import ConsumerConfig


async def main():
    user, password = os.environ["NATS_USER"], os.environ["NATS_PASSWORD"]
    client = await nats.connect(os.environ["NATS_URL"], user=user, password=password)
    config = ConsumerConfig(inactive_threshold=300)
    events = await client.jetstream().subscribe("*.team-a.>", ordered_consumer=True, config=config)
    async for event in events.messages:
        print(event.metadata.sequence.stream, event.subject, event.data.decode(), flush=True)


asyncio.run(main())
```

A durable consumer goes on where the program was, also after its end: an event that was not acknowledged comes again.
Here the program is sent events:

```python
import asyncio
import os

import nats


async def main():
    user, password = os.environ["NATS_USER"], os.environ["NATS_PASSWORD"]
    client = await nats.connect(os.environ["NATS_URL"], user=user, password=password)
    events = await client.jetstream().subscribe("jobs.team-a.>", durable="pages-team-a")
    async for event in events.messages:
        print(event.metadata.sequence.stream, event.subject, event.data.decode(), flush=True)
        await event.ack()


asyncio.run(main())
```

And here it fetches them, as many at a time as it likes:

```python
import asyncio
import os

import nats


async def main():
    user, password = os.environ["NATS_USER"], os.environ["NATS_PASSWORD"]
    client = await nats.connect(os.environ["NATS_URL"], user=user, password=password)
    events = await client.jetstream().pull_subscribe("jobs.team-a.>", durable="reports-team-a")
    while True:
        try:
            batch = await events.fetch(100, timeout=5)
        except TimeoutError:
            continue
        for event in batch:
            print(event.metadata.sequence.stream, event.subject, event.data.decode(), flush=True)
            await event.ack()


asyncio.run(main())
```

A program that keeps its own position, such as one that writes to a database, resumes behind it:

```python
import asyncio
import os

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy


async def main():
    user, password = os.environ["NATS_USER"], os.environ["NATS_PASSWORD"]
    client = await nats.connect(os.environ["NATS_URL"], user=user, password=password)
    position = int(os.environ.get("POSITION", "0"))
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=position + 1, inactive_threshold=300
    )
    events = await client.jetstream().subscribe("jobs.team-a.>", ordered_consumer=True, config=config)
    async for event in events.messages:
        print(event.metadata.sequence.stream, event.subject, event.data.decode(), flush=True)


asyncio.run(main())
```

A durable consumer in Go, with the package `jetstream` of nats.go:

```go
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {{
	user := nats.UserInfo(os.Getenv("NATS_USER"), os.Getenv("NATS_PASSWORD"))
	client, err := nats.Connect(os.Getenv("NATS_URL"), user)
	if err != nil {{
		log.Fatal(err)
	}}
	stream, err := jetstream.New(client)
	if err != nil {{
		log.Fatal(err)
	}}
	consumer, err := stream.CreateOrUpdateConsumer(context.Background(), "JOBS", jetstream.ConsumerConfig{{
		Durable:       "tables-team-a",
		FilterSubject: "jobs.team-a.>",
	}})
	if err != nil {{
		log.Fatal(err)
	}}
	events, err := consumer.Messages()
	if err != nil {{
		log.Fatal(err)
	}}
	for {{
		event, err := events.Next()
		if err != nil {{
			log.Fatal(err)
		}}
		place, err := event.Metadata()
		if err != nil {{
			log.Fatal(err)
		}}
		fmt.Println(place.Sequence.Stream, event.Subject(), string(event.Data()))
		event.Ack()
	}}
}}
```

An ordered consumer in Go, from behind the position that the program keeps; the server forgets it after five minutes,
too:

```go
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {{
	user := nats.UserInfo(os.Getenv("NATS_USER"), os.Getenv("NATS_PASSWORD"))
	client, err := nats.Connect(os.Getenv("NATS_URL"), user)
	if err != nil {{
		log.Fatal(err)
	}}
	stream, err := jetstream.New(client)
	if err != nil {{
		log.Fatal(err)
	}}
	// 0 without a position: from the first event on.
	position, _ := strconv.ParseUint(os.Getenv("POSITION"), 10, 64)
	consumer, err := stream.OrderedConsumer(context.Background(), "JOBS", jetstream.OrderedConsumerConfig{{
		FilterSubjects: []string{{"jobs.team-a.>"}},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    position + 1,
	}})
	if err != nil {{
		log.Fatal(err)
	}}
	events, err := consumer.Messages()
	if err != nil {{
		log.Fatal(err)
	}}
	for {{
		event, err := events.Next()
		if err != nil {{
			log.Fatal(err)
		}}
		place, err := event.Metadata()
		if err != nil {{
			log.Fatal(err)
		}}
		fmt.Println(place.Sequence.Stream, event.Subject(), string(event.Data()))
	}}
}}
```

The older JetStream functions of nats.go work as well, such as `SubscribeSync` with `nats.OrderedConsumer()` or
`nats.Durable("…")`.

With the NATS command line; `nats stream view` shows a page at a time, and needs a terminal:

```sh
nats sub 'jobs.team-a.>' --stream=JOBS --all --count=4
nats sub 'jobs.team-a.>' --stream=JOBS --start-sequence=3 --count=3
nats stream view JOBS 10 --subject='jobs.team-a.>'
nats consumer add JOBS reports --pull --defaults --filter='jobs.team-a.>' --deliver=all --ack=explicit
nats consumer next JOBS reports --count=4
nats consumer rm JOBS reports --force
```

## Subjects

`FAMILY.NAMESPACE.NAME.UID.AUTHOR.TYPE`: for example `jobs.team-a.resnet.7f3c….scheduler.SlotsAssigned`.
The family is `facts` for what was seen, and `jobs` for what was decided.
A dot in a name is an underscore.
The uid is `none` for a scale request whose job does not exist yet: it goes on under the job's uid after
`ScaleRequestGone` with the reason `Bound`, or fails at `TimePassed` with the timer `JobWait`.

| all events of | subject |
| --- | --- |
| everything | `>` |
| a namespace | `*.team-a.>` |
| a job, of each incarnation | `*.team-a.resnet.>` |
| decisions alone | `jobs.>` |
| a type | `*.*.*.*.*.JobFailed` |

## What is in a message

The body is JSON, by the [schema](schemas/events.json) of its type, which `muster schema TYPE` prints.
The headers are CloudEvents 1.0 in NATS' binding; the [AsyncAPI document](schemas/asyncapi.json)
(`muster schema --asyncapi`) describes both.

| header | for example | |
| --- | --- | --- |
| `ce-id` | `b7f6c1a2-…` | unique in the log |
| `ce-type` | `dev.muster.SlotsAssigned` | in release 0.1 `SlotsAssigned` |
| `ce-source` | `urn:uuid:LOG#scheduler` | the log's identity and the author; in release 0.1 the author |
| `ce-subject` | `team-a/resnet/7f3c…` | the job, with its uid; not in release 0.1 |
| `ce-time` | `2026-01-01T00:00:00.000Z` | when the author recorded it, by the author's clock |
| `ce-datacontenttype` | `application/json` | `content-type` in release 0.1 |

Ignore other headers.

## The promise

- **Order.** The stream's sequence orders all events, and is that of the log: what `muster history` shows.
  An event comes after the events that made it.
  Times do not order events: each author has its own clock.
- **Duplicates.** Each event is in the stream once.
  A consumer delivers it at least once: again when it was not acknowledged, and perhaps after a crash of NATS.
  What it delivers again may come behind later events.
  With an ordered consumer skip sequences up to your position; with a durable one remember the sequences, or `ce-id`s,
  of the events that you handled.
- **Gaps.** Sequences of one job are not consecutive.
  A consumer of `>` of the user `subscriber` sees every number, from the first that the copy has.
- **Delay.** An event is in the copy a moment after it is in the log.
  A copy hears of the log each second, also when there is no event: in the information of its stream
  (`nats stream info JOBS`: Last Seen) `mirror.active` is the nanoseconds since then.
  More than 3 seconds mean that the copy is no longer fed, or that the log is away; tell an administrator,
  to whom `muster doctor` says which copies are gone, not fed or behind.
- **Evolution.** A type, a field or a word of an enumeration may be added in any release.
  A field is never renamed, retyped or removed, and a type keeps its meaning: a changed meaning is a new type.
  Ignore fields and types that you do not know.
  A type that is no longer written stays in the schema, since its events stay in the log.
  `tests/docs/test_schemas.py` holds the schemas to what each [release](schemas/released) had.
- **Retention.** Events stay for ever, unless an administrator purges the log; the copy keeps what it has room for.

## All types

Facts are marked with an F.
*Since* is the first release that writes the type.
The fields `because`, `of`, `anchor` and `sequence` are sequences of the stream.

- A job's phase is the last event of `status` that begins with `Job`, without this word.
- `request` is the `uid` of a `ScaleRequested`, which alone has the request's name, and is a fact: a filter of
  `jobs.team-a.>` does not see it. It comes a second time, as another event, once the request has an owner.
- A request that was rejected is shown as `ScaleFailed` by kubectl.
- After `EventDisowned`, what you took from the event at its `sequence` no longer counts.

{types}
"""


def page() -> str:
    """`docs/events.md`."""
    return PAGE.format(
        contract=CONTRACT,
        consumers=MAX_CONSUMERS,
        days=INACTIVE_SECONDS // 86_400,
        types="\n\n".join("\n".join(_of(author)) for author in get_args(Author)),
    )


def _of(author: Author) -> Iterator[str]:
    yield f"### {author}\n\n| type | meaning | since | for example |\n| --- | --- | --- | --- |"
    for tag, kind in KINDS.items():
        if author in AUTHORS[kind]:
            fact = " F" if kind in FACTS else ""
            (example,) = (each for each in EXAMPLES if type(each) is kind)
            body = msgspec.json.encode(example).decode().replace("|", "\\|")
            yield f"| [`{tag}`](schemas/{tag}.json){fact} | {summary(tag)} | {_since(tag)} | `{body}` |"


@cache
def _released() -> dict[str, frozenset[str]]:
    """The types of each release."""
    return {path.stem: frozenset(msgspec.json.decode(path.read_bytes())) for path in sorted(RELEASED.glob("*.json"))}


def _since(tag: str) -> str:
    return next((release for release, types in _released().items() if tag in types), NEXT).removesuffix(".0")


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "events.md").write_text(page())


if __name__ == "__main__":
    main()
