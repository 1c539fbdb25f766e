package server

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/cmd/bench/part"
)

// Data is what to write.
type Data struct {
	DB string
	// Collections are called by [Collection]. Events and Documents are of all of them together, and shared out evenly.
	Collections, Events, Documents int
	// Rate is in events a second; 0 is as fast as possible.
	Rate int
	// Payload is the length of a text in every change.
	Payload int
}

// Collection returns the name of the i-th collection.
func Collection(i int) string { return fmt.Sprintf("c%02d", i) }

// Made tells what was written.
type Made struct {
	// Start is a time in the log at or before the first change, in seconds since 1970.
	Start int64
	Took  time.Duration
}

// Stats is what a server tells of itself.
type Stats struct {
	// Examined and Sent count the log entries that all change streams have looked at and the events that they have sent, -1 where
	// the server does not tell.
	Examined, Sent int64
	// CPU is the server's CPU time, -1 where it does not tell.
	CPU time.Duration
}

// A Shift moves the server's clock.
type Shift struct {
	By time.Duration
}

// A Start is what a server is told first.
type Start struct {
	// URI is of the MongoDB to write to; a part that is a server itself ignores it.
	URI string
}

// An Address is where clients reach the server.
type Address struct {
	URI string
}

// A log is a MongoDB as the benchmark uses it.
type log interface {
	generate(ctx context.Context, d Data) error
	stats(ctx context.Context) (Stats, error)
	client() *mongo.Client
	uri() string
}

// handlers are the methods of a part that is a log.
func handlers(open func(context.Context, Start) (log, error)) map[string]part.Handler {
	var l log
	return map[string]part.Handler{
		"start": part.Handle(func(ctx context.Context, s Start) (a Address, err error) {
			if l, err = open(ctx, s); err != nil {
				return a, err
			}
			return Address{URI: l.uri()}, nil
		}),
		"generate": part.Handle(func(ctx context.Context, d Data) (Made, error) {
			start, err := operationTime(ctx, l.client())
			if err != nil {
				return Made{}, err
			}
			begun := time.Now()
			err = l.generate(ctx, d)
			return Made{Start: start, Took: time.Since(begun)}, err
		}),
		"stats": part.Handle(func(ctx context.Context, _ part.None) (Stats, error) { return l.stats(ctx) }),
		"drop": part.Handle(func(ctx context.Context, d Data) (part.None, error) {
			if err := l.client().Database(d.DB).Drop(ctx); err != nil {
				return part.None{}, fmt.Errorf("drop database %s: %w", d.DB, err)
			}
			return part.None{}, nil
		}),
		"shift": func(_ context.Context, raw json.RawMessage) (any, error) {
			var s Shift
			clock, ok := l.(interface{ shift(d time.Duration) })
			if err := json.Unmarshal(raw, &s); err != nil || !ok {
				return nil, fmt.Errorf("move the clock: %w", err)
			}
			clock.shift(s.By)
			return part.None{}, nil
		},
	}
}

// operationTime returns the second of the log's end.
func operationTime(ctx context.Context, client *mongo.Client) (int64, error) {
	var hello struct {
		OperationTime bson.Timestamp `bson:"operationTime"`
	}
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Decode(&hello); err != nil {
		return 0, fmt.Errorf("read the operation time: %w", err)
	}
	return int64(hello.OperationTime.T), nil
}
