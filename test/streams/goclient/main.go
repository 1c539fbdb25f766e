// Command goclient reads a stream as programs in Go do, with one of the libraries for it, and
// prints the id and the data of each message.
//
//	goclient r3labs|tmaxmax|launchdarkly URL
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	launchdarkly "github.com/launchdarkly/eventsource"
	r3labs "github.com/r3labs/sse/v2"
	tmaxmax "github.com/tmaxmax/go-sse"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: goclient r3labs|tmaxmax|launchdarkly URL")
		os.Exit(2)
	}
	library := map[string]func(url string) error{"r3labs": readR3labs, "tmaxmax": readTmaxmax, "launchdarkly": readLaunchDarkly}[os.Args[1]]
	if err := library(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show(id, data string) { fmt.Printf("%s\t%s\n", id, data) }

// readR3labs subscribes to the address as it is: Subscribe would add a parameter that is not the
// node's. The library returns where a stream ends regularly. It also passes on what has come of the
// last event when a stream ends.
func readR3labs(url string) error {
	client := r3labs.NewClient(url, r3labs.ClientMaxBufferSize(16<<20))
	for {
		_ = client.SubscribeRaw(func(e *r3labs.Event) {
			if json.Valid(e.Data) {
				show(string(e.ID), string(e.Data))
			}
		})
		time.Sleep(200 * time.Millisecond)
	}
}

func readTmaxmax(url string) error {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	client := tmaxmax.Client{Backoff: tmaxmax.Backoff{InitialInterval: 200 * time.Millisecond, MaxRetries: -1}}
	connection := client.NewConnection(r)
	connection.Buffer(nil, 16<<20)
	connection.SubscribeMessages(func(e tmaxmax.Event) { show(e.LastEventID, e.Data) })
	for {
		if err := connection.Connect(); err != nil {
			time.Sleep(200 * time.Millisecond)
		}
	}
}

func readLaunchDarkly(url string) error {
	stream, err := launchdarkly.SubscribeWithURL(url, launchdarkly.StreamOptionInitialRetry(200*time.Millisecond), launchdarkly.StreamOptionErrorHandler(
		func(error) launchdarkly.StreamErrorHandlerResult { return launchdarkly.StreamErrorHandlerResult{} }))
	if err != nil {
		return err
	}
	for e := range stream.Events {
		show(e.Id(), e.Data())
	}
	return nil
}
