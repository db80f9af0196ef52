// Reads the events of team-a by a durable consumer, which goes on where the program was.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

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
	consumer, err := stream.CreateOrUpdateConsumer(context.Background(), "JOBS", jetstream.ConsumerConfig{
		Durable:       "tables-team-a",
		FilterSubject: "jobs.team-a.>",
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
		event.Ack()
	}
}
