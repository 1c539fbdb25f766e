package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/sink"
)

// A sequence is the known state of a partition's messages in the stream.
type sequence struct {
	epoch change.Epoch
	known bool   // last and at are those of the stream
	last  uint64 // sequence of the last one
	at    sink.Position
}

// sequenceOf returns the sequence of a message's partition. One goroutine at a time sends messages
// of a partition.
func (t *Target) sequenceOf(m *sink.Message) *sequence {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.mu.last[m.Partition]
	if of == nil || of.epoch != m.Epoch {
		of = &sequence{epoch: m.Epoch}
		t.mu.last[m.Partition] = of
	}
	return of
}

// sendFenced publishes messages one after the other, each under the condition that the previous
// message is the last one of the partition in the stream. So the stream accepts no message of a
// replaced process that has not noticed its replacement. The last message in the stream shows its
// contents, and sendFenced skips a repetition up to there.
func (t *Target) sendFenced(ctx context.Context, messages []*sink.Message) (n int, err error) {
	c, err := t.connected(ctx)
	if err != nil {
		return 0, err
	}
	filter := t.subject.Filter(messages[0].Partition)
	for _, m := range messages {
		of := t.sequenceOf(m)
		if !of.known {
			if err := t.look(ctx, c, m, of, filter); err != nil {
				return n, err
			}
		}
		if of.at.Has(m) {
			n++
			continue
		}
		next := of.at.With(m)
		ended := make(chan error, 1)
		t.publish(ctx, c, m, [][2]string{
			{"Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(of.last, 10)},
			{"Nats-Expected-Last-Subject-Sequence-Subject", filter},
			{positionHeader, string(next.AppendText(nil))},
			{sourceHeader, t.cfg.Source},
		}, func(seq uint64, err error) {
			of.last = seq
			of.at = next
			of.known = err == nil
			ended <- err
		})
		if err := <-ended; err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// The headers from which an owner learns the contents of the stream.
const (
	positionHeader = "Streamer-Position"
	sourceHeader   = "Streamer-Source"
)

// look reads which messages of the partition are in the stream.
func (t *Target) look(ctx context.Context, c *connection, m *sink.Message, of *sequence, filter string) error {
	seq, header, err := c.lastOf(ctx, t.cfg, filter, t.subject.Name(m))
	if err != nil {
		return err
	}
	var at sink.Position
	if header.Get(sourceHeader) == t.cfg.Source && header.Get(positionHeader) != "" {
		if at, err = sink.ParsePosition(header.Get(positionHeader)); err != nil {
			return fmt.Errorf("read the position: %w", err)
		}
		if at.Epoch.Compare(m.Epoch) > 0 {
			return fmt.Errorf("%w: the stream has messages of a later owner", sink.ErrReplaced)
		}
	}
	of.last = seq
	of.at = at
	of.known = true
	return nil
}

// fenceMajor and fenceMinor are the first server version in which a condition may name other
// subjects than the message's.
const fenceMajor, fenceMinor = 2, 12

// canFence returns an error if the configuration requires fencing and the server's version does not
// support it.
func (t *Target) canFence(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); !t.cfg.Fence || err != nil {
		return nil //nolint:nilerr // a version in another format counts as a later one
	}
	if major > fenceMajor || major == fenceMajor && minor >= fenceMinor {
		return nil
	}
	return fmt.Errorf("nats.fence needs NATS %d.%d, the server has version %s: upgrade it or leave nats.fence out", fenceMajor, fenceMinor, version)
}

// lastOf returns the sequence and the headers of the last message of a filter, zero if there is
// none.
func (c *connection) lastOf(ctx context.Context, cfg Config, filter, subject string) (seq uint64, header nats.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.AckTimeout)
	defer cancel()
	js, err := jetstream.New(c.nc)
	if err != nil {
		return 0, nil, fmt.Errorf("ask for the last sequence: %w", err)
	}
	name := cfg.Stream
	if name == "" {
		switch name, err = js.StreamNameBySubject(ctx, subject); {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return 0, nil, noStream(subject)
		case err != nil:
			return 0, nil, fmt.Errorf("find the stream of %s: %w", subject, err)
		}
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, nil, fmt.Errorf("find stream %s: %w", name, err)
	}
	last, err := stream.GetLastMsgForSubject(ctx, filter)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("ask for the last sequence: %w", err)
	}
	return last.Sequence, last.Header, nil
}

// Check implements sink.Target.
func (t *Target) Check(ctx context.Context) (string, error) {
	c, err := t.connect(ctx)
	if err != nil {
		return "", err
	}
	defer c.nc.Close()
	js, err := jetstream.New(c.nc)
	if err != nil {
		return "", fmt.Errorf("use JetStream: %w", err)
	}
	var streams []string
	for _, subject := range []string{t.subject.Name(&sink.Message{DB: "db", Coll: "coll", Op: "insert"}), t.cfg.Losses} {
		name, err := js.StreamNameBySubject(ctx, subject)
		switch {
		case err != nil:
			return "", fmt.Errorf("no stream has subject %s: %w", subject, err)
		case t.cfg.Stream != "" && name != t.cfg.Stream:
			return "", fmt.Errorf("stream %s has subject %s, not %s", name, subject, t.cfg.Stream)
		case !slices.Contains(streams, name):
			if err := t.checkStream(ctx, js, name); err != nil {
				return "", err
			}
			streams = append(streams, name)
		}
	}
	return fmt.Sprintf("stream %s has the subjects", strings.Join(streams, ", ")), nil
}

// checkStream returns an error if a stream may not keep the last message of each partition, which
// fencing needs.
func (t *Target) checkStream(ctx context.Context, js jetstream.JetStream, name string) error {
	if !t.cfg.Fence {
		return nil
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", name, err)
	}
	if r := stream.CachedInfo().Config.Retention; r != jetstream.LimitsPolicy {
		return fmt.Errorf("stream %s removes what consumers have acknowledged (retention %s), and nats.fence needs the last message of each partition: "+
			"use retention limits, or leave nats.fence out", name, r)
	}
	return nil
}
