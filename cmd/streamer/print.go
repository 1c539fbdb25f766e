package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/streamer"
)

// printEvents writes a subscriber's events and losses as lines of JSON and acknowledges what is written, until its session ends.
func printEvents(ctx context.Context, s *streamer.Shared, cluster string, w io.Writer) error {
	var lines []byte
	for {
		batches, err := s.Receive(ctx)
		if errors.Is(err, streamer.ErrClosed) || fault.Of(err) == fault.NodeStopping {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive events: %w", err)
		}
		for _, b := range batches {
			s.Prune(b)
			lines = lines[:0]
			if b.Loss != nil {
				lines = append(gateway.AppendLoss(lines, cluster, b.To, b.Loss), '\n')
			}
			for i := range b.Events {
				lines = append(gateway.AppendJSON(lines, cluster, &b.Events[i], b.Payload(i)), '\n')
			}
			if _, err := w.Write(lines); err != nil {
				return fmt.Errorf("write events: %w", err)
			}
			if err := s.Ack(b.Seq); err != nil {
				return fmt.Errorf("acknowledge events: %w", err)
			}
		}
	}
}
