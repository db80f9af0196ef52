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

func main() {
	user := nats.UserInfo(os.Getenv("NATS_USER"), os.Getenv("NATS_PASSWORD"))
	client, err := nats.Connect(os.Getenv("NATS_URL"), user)
	if err != nil {
		log.Fatal(err)
	}
	stream, err := jetstream.New(client)
	if err != nil {
		log.Fatal(err)
	}
	// 0 without a position: from the first event on.
	position, _ := strconv.ParseUint(os.Getenv("POSITION"), 10, 64)
	consumer, err := stream.OrderedConsumer(context.Background(), "JOBS", jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"jobs.team-a.>"},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    position + 1,
	})
	if err != nil {
		log.Fatal(err)
	}
	events, err := consumer.Messages()
	if err != nil {
		log.Fatal(err)
	}
	for {
		event, err := events.Next()
		if err != nil {
			log.Fatal(err)
		}
		place, err := event.Metadata()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(place.Sequence.Stream, event.Subject(), string(event.Data()))
	}
}
