"""The page for those who subscribe: the contract, examples that `tests/subscribers/test_page.py` runs, and all types.

Pure, but for `make pages`, which writes `docs/events.md`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec

from muster.schemas import CONTRACT, KINDS, summary
from shared.eventlog.account import MAX_ACK_PENDING, MAX_CONNECTIONS, MAX_CONSUMERS
from shared.eventlog.subscribers import INACTIVE_SECONDS
from shared.job.events.catalog import AUTHORS, FACTS
from shared.job.events.event import Author
from tests.job.examples import EXAMPLES

PAGE = """\
# Events for your programs

Every event of a job is in the log and stays there; a program follows them with any NATS client (JetStream push, pull,
ordered or durable).
This page is the contract with it, version {contract}; `make pages` writes it.

## Connect

A program reads a copy of the log, the stream `JOBS`, on a server of its own that is a leaf node of the log's: what
subscribers do never reaches the log's server. Set `NATS_URL` (of the copies' server), `NATS_USER` and `NATS_PASSWORD`.

| user | reads |
| --- | --- |
| `subscriber-team-a` | the namespace `team-a`, and nothing of others |
| `subscriber` | all namespaces; for administrators |

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
A change restarts the copies' server; the first subscriber restarts the log's too, which then listens for it.
Run `muster subscriber remove` as administrator before you take a namespace out.
Beside your own NATS, run a second one with the configuration of the chart (`helm template … --set
setup.subscriberNamespaces.team-a=268435456 --show-only templates/nats-copies.yaml`) and give yours a `leafnodes`
listener, then run `muster subscriber add team-a` as administrator of the log.
With Compose: `docker compose --profile copies up --detach`, then `muster setup --subscribers BYTES`; port 4223.

### For all namespaces

```sh
muster setup --subscribers 10000000000
```

In the chart: `setup.subscribers`, and the Secret `muster-nats-subscriber`.

### Both

- The disk of the copies (`nats.copies.size`) also holds one that is as large as the log and feeds the others. A size
  that does not fit is refused; a full copy loses its oldest events. Copies need NATS 2.14.
- After the log was restored or made anew, the same command makes the copy anew. A program that keeps its position
  keeps the log's identity (`ce-source` before the `#`): at another identity, or a position above the last sequence,
  it begins at 0.
- A copy has at most {consumers} consumers, shared by all programs of its user; one that is unused for {days} days is
  removed, a durable one too. Give consumers for one use an `inactive_threshold`.
- A user has at most {connections} connections. One that leaves 8 MB unread is closed: pull, or use flow control.
- A consumer has sent at most {pending} events that no one acknowledged (`max_ack_pending`).
- Push consumers send to subjects that begin with `_INBOX.`.
- What a program asked for in its last two seconds is not lost when it is killed: it comes again after `ack_wait`.

## Read

In order, from behind a position that the program keeps; 0 is the first event:

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

With a durable consumer, which goes on where the program was; an event that was not acknowledged comes again:

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

The same in Go:

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
The uid is `none` for a scale request without a job: it goes on under the job's uid after `ScaleRequestGone` with the
reason `Bound`, or fails at `TimePassed` with the timer `JobWait`.

| all events of | subject |
| --- | --- |
| everything | `>` |
| a namespace | `*.team-a.>` |
| a job, of each incarnation | `*.team-a.resnet.>` |
| decisions alone | `jobs.>` |
| a type | `*.*.*.*.*.JobFailed` |

## What is in a message

The body is JSON by the [schema](schemas/events.json) of its type (`muster schema TYPE`); the headers are CloudEvents
1.0 in NATS' binding: what that requires, and the time; the subject names the job.
The [AsyncAPI document](schemas/asyncapi.json) describes both. Ignore other headers.

| header | for example | |
| --- | --- | --- |
| `ce-id` | `b7f6c1a2-…` | unique in the log |
| `ce-type` | `dev.muster.SlotsAssigned` | |
| `ce-source` | `urn:uuid:LOG#scheduler` | the log's identity and the author |
| `ce-time` | `2026-01-01T00:00:00.000Z` | by the author's clock |
| `ce-specversion` | `1.0` | |

## The promise

- **Order.** The stream's sequence orders all events; times do not. An event comes after those that made it.
- **Duplicates.** Each event is in the stream once, and is delivered at least once: skip sequences up to your
  position, or remember handled sequences or `ce-id`s with a durable consumer.
- **Gaps.** Sequences of one job are not consecutive; `>` of the user `subscriber` sees every number.
- **Delay.** A moment. More than 3 s (in nanoseconds) in `mirror.active` of the stream's information mean that the
  copy is not fed: an administrator's `muster doctor` says why.
- **Evolution.** Types, fields and words are added; none is renamed, retyped or removed, and a type keeps its meaning.
  Ignore what you do not know.
- **Retention.** For ever, unless an administrator purges the log; a copy keeps what it has room for.

## All types

F marks facts. The fields `because`, `of`, `anchor` and `sequence` are sequences of the stream.

- A job's phase is the last event of `status` that begins with `Job`, without this word.
- `request` is the `uid` of a `ScaleRequested`, which alone has the request's name. It comes again once the request
  has an owner.
- A request that was rejected is shown as `ScaleFailed` by kubectl.
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
        types="\n\n".join("\n".join(_of(author)) for author in get_args(Author)),
    )


def _of(author: Author) -> Iterator[str]:
    yield f"### {author}\n"
    for tag, kind in KINDS.items():
        if author in AUTHORS[kind]:
            fact = " F" if kind in FACTS else ""
            (example,) = (each for each in EXAMPLES if type(each) is kind)
            body = msgspec.json.encode(example).decode()
            yield f"- [`{tag}`](schemas/{tag}.json){fact}: {summary(tag)}  \n  `{body}`"


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs" / "events.md").write_text(page())


if __name__ == "__main__":
    main()
