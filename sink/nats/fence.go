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

// expect adds to the first message of a partition with nothing under way which sequence must be the last one of the partition's subjects.
// While something is under way the last sequence is unknown; messages follow the one that was checked then.
func (t *Target) expect(ctx context.Context, m *sink.Message, h nats.Header) (*sequence, error) {
	of := t.last[m.Partition]
	if of == nil || of.epoch != m.Epoch {
		of = &sequence{epoch: m.Epoch}
		t.last[m.Partition] = of
	}
	filter := t.subject.Filter(m.Partition)
	of.mu.Lock()
	known := of.known || of.underWay > 0
	of.mu.Unlock()
	if !known {
		last, by, err := t.conn.lastOf(ctx, t.cfg, filter, t.subject.Name(m))
		switch {
		case err != nil:
			return nil, err
		case by.Compare(m.Epoch) > 0:
			return nil, fmt.Errorf("%w: the stream has messages of a later owner", sink.ErrReplaced)
		}
		of.mu.Lock()
		of.last, of.known = last, true
		of.mu.Unlock()
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.underWay == 0 {
		h["Nats-Expected-Last-Subject-Sequence"] = []string{strconv.FormatUint(of.last, 10)}
		h["Nats-Expected-Last-Subject-Sequence-Subject"] = []string{filter}
	}
	of.underWay++
	return of, nil
}

// ended notes that a message is not under way any more, and its sequence. After an error the last sequence is unknown.
func (s *sequence) ended(seq uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay--
	if err != nil {
		s.known = false
		return
	}
	s.last = max(s.last, seq)
}

// lastOf returns the sequence and the epoch of the last message of a filter, zero if there is none.
func (c *connection) lastOf(ctx context.Context, cfg Config, filter, subject string) (seq uint64, by change.Epoch, err error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.AckTimeout)
	defer cancel()
	js, err := jetstream.New(c.nc)
	if err != nil {
		return 0, by, fmt.Errorf("ask for the last sequence: %w", err)
	}
	name := cfg.Stream
	if name == "" {
		if name, err = js.StreamNameBySubject(ctx, subject); err != nil {
			return 0, by, fmt.Errorf("find the stream of %s: %w", subject, err)
		}
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, by, fmt.Errorf("find stream %s: %w", name, err)
	}
	last, err := stream.GetLastMsgForSubject(ctx, filter)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, by, nil
	}
	if err != nil {
		return 0, by, fmt.Errorf("ask for the last sequence: %w", err)
	}
	_, _ = fmt.Sscanf(last.Header.Get("Streamer-Epoch"), "%d.%d", &by.Incarnation, &by.Revision) // zero if somebody else has written it
	return last.Sequence, by, nil
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
			streams = append(streams, name)
		}
	}
	return fmt.Sprintf("stream %s has the subjects", strings.Join(streams, ", ")), nil
}
