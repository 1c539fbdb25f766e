package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gateway"
)

// printEvents writes a session's events and notices as lines of JSON and acknowledges what is written, until the session ends.
func printEvents(ctx context.Context, s *delivery.Session, encoder *gateway.Encoder, w io.Writer) error {
	var lines []byte
	for {
		batches, err := s.Receive(ctx)
		if errors.Is(err, delivery.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive events: %w", err)
		}
		for _, b := range batches {
			if b.Over() {
				s.Drop(b)
				continue
			}
			lines = lines[:0]
			if b.Notice != nil {
				lines = append(encoder.Notice(lines, b.Notice, &b.Partition, b.From, b.To), '\n')
			}
			for i := range b.Events {
				if lines, err = encoder.Event(lines, &b.Events[i]); err != nil {
					return err
				}
				lines = append(lines, '\n')
			}
			if _, err := w.Write(lines); err != nil {
				return fmt.Errorf("write events: %w", err)
			}
			s.Ack(b)
		}
	}
}
