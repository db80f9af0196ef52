// The older JetStream functions of nats.go: an ordered consumer, from a sequence if one is named, or a durable one.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

const subject = "jobs.team-a.>"

func must[T any](found T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return found
}

func show(event *nats.Msg) {
	fmt.Println(must(event.Metadata()).Sequence.Stream, event.Subject, string(event.Data))
}

func main() {
	user := nats.UserInfo(os.Getenv("NATS_USER"), os.Getenv("NATS_PASSWORD"))
	stream := must(must(nats.Connect(os.Getenv("NATS_URL"), user)).JetStream())
	switch os.Args[1] {
	case "ordered":
		options := []nats.SubOpt{nats.OrderedConsumer()}
		if len(os.Args) > 2 {
			options = append(options, nats.StartSequence(must(strconv.ParseUint(os.Args[2], 10, 64))))
		}
		events := must(stream.SubscribeSync(subject, options...))
		for {
			show(must(events.NextMsgWithContext(context.Background())))
		}
	case "pushed":
		events := must(stream.SubscribeSync(subject, nats.Durable("older-pushed")))
		for {
			event := must(events.NextMsgWithContext(context.Background()))
			// Its print is what the reader counts, so nothing stays behind it that would come again.
			must("", event.AckSync())
			show(event)
		}
	case "pulled":
		events := must(stream.PullSubscribe(subject, "older-pulled"))
		for {
			batch, err := events.Fetch(10, nats.MaxWait(time.Second))
			if err != nil && !errors.Is(err, nats.ErrTimeout) {
				log.Fatal(err)
			}
			for _, event := range batch {
				must("", event.AckSync())
				show(event)
			}
		}
	}
}
