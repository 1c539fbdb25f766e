package delivery_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/dedup"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
)

// An endless source answers with the same events again and again, each time later.
type endless struct {
	template [][]byte
	size     int
	token    int // where the seconds are in an event's token, and in its cluster time
	times    []int
	replies  chan int // how many more
}

func newEndless(events, pad int) *endless {
	s := &endless{replies: make(chan int, 1)}
	for i := range events {
		e := changetest.Event{ID: int64(i * 7919), Time: change.Timestamp{T: 1, I: uint32(i + 1)}, Pad: pad}
		s.template = append(s.template, e.Bytes())
		s.size += len(s.template[i])
		s.times = append(s.times, bytes.Index(s.template[i], []byte("clusterTime\x00"))+len("clusterTime\x00")+4)
	}
	s.token = bytes.Index(s.template[0], []byte("8200000001")) + 2
	return s
}

func (s *endless) Open(context.Context, change.Position) (oplog.Stream, error) {
	return &endlessStream{source: s}, nil
}

type endlessStream struct {
	source *endless
	left   int
	t      uint32
}

func (s *endlessStream) Base() change.Position { return change.At(change.Timestamp{T: 1}) }
func (s *endlessStream) Close()                {}

func (s *endlessStream) Next(ctx context.Context) (oplog.Reply, error) {
	for s.left == 0 {
		select {
		case s.left = <-s.source.replies:
		case <-ctx.Done():
			return oplog.Reply{}, context.Cause(ctx)
		}
	}
	s.left--
	s.t++
	buffer := make([]byte, 0, s.source.size)
	r := oplog.Reply{At: time.Now(), Size: s.source.size, Events: make([][]byte, len(s.source.template))}
	var hex [8]byte
	copy(hex[:], fmt.Sprintf("%08X", s.t))
	for i, e := range s.source.template {
		at := len(buffer)
		buffer = append(buffer, e...)
		raw := buffer[at:len(buffer):len(buffer)]
		copy(raw[s.source.token:], hex[:])
		binary.LittleEndian.PutUint32(raw[s.source.times[i]:], s.t)
		r.Events[i] = raw
	}
	return r, nil
}

// BenchmarkHub takes events from the reader through the hub to sessions that acknowledge. It is the
// path of an event without MongoDB and without a transport.
func BenchmarkHub(b *testing.B) {
	for _, partitions := range []int{64, 4096} {
		for _, sessions := range []int{1, 1000} {
			for _, wants := range []string{"everything", "everything as JSON", "a share", "nothing", "one form", "a form each"} {
				reply, pad := 400, 150
				switch wants {
				case "everything", "everything as JSON":
					if sessions == 1000 {
						continue // that is the network's
					}
				case "one form", "a form each": // a kilobyte as JSON, to all
					if sessions == 1 || partitions != 64 {
						continue
					}
					reply, pad = 8, 1000
				}
				b.Run(fmt.Sprintf("partitions=%d/sessions=%d/%s", partitions, sessions, wants), func(b *testing.B) {
					source := newEndless(reply, pad)
					log := oplog.New(oplog.Config{Partitions: partitions, Dedup: &dedup.Config{Size: 100_000}, Reach: func(context.Context) (gap.Reach, error) { return gap.Reach{}, nil }}, source)
					h := delivery.New(delivery.Config{Partitions: partitions}, log)
					ctx, cancel := context.WithCancel(b.Context())
					var running sync.WaitGroup
					for _, run := range []func() error{func() error { return log.Run(ctx, change.Position{}) }, func() error { return h.Run(ctx) }} {
						running.Go(func() {
							if err := run(); err != nil {
								b.Error(err)
							}
						})
					}
					var opened []*delivery.Session
					for i := range sessions {
						f, form := match.Filter{Carries: match.Carries{Document: true}}, delivery.Form{}
						switch wants {
						case "one form", "everything as JSON":
							form.Format = delivery.JSON
						case "a form each":
							form = delivery.Form{Format: delivery.JSON, Fields: []string{"pad", fmt.Sprintf("x%d", i)}}
						case "a share":
							f.Source = fmt.Sprintf("doc._id == %d", i*7919)
						case "nothing":
							f.Source = fmt.Sprintf("doc._id == %d", -1-i)
						}
						p, err := match.Compile(f)
						if err != nil {
							b.Fatal(err)
						}
						s, err := h.Open(ctx, delivery.SessionConfig{}, []delivery.Subscription{{ID: "x", Program: p, Form: form}})
						if err != nil {
							b.Fatal(err)
						}
						opened = append(opened, s)
						running.Go(func() {
							for {
								batches, _, err := s.Receive(ctx)
								if err != nil {
									return
								}
								if _, err := s.Ack(batches[len(batches)-1].Seq); err != nil {
									b.Error(err)
								}
							}
						})
					}
					poll(time.Millisecond, func() bool { return h.Load().Live == sessions })
					n := max(b.N/reply, 1)
					b.ReportAllocs()
					b.ResetTimer()
					source.replies <- n
					end := change.Timestamp{T: uint32(n), I: uint32(reply)}
					poll(100*time.Microsecond, func() bool { return opened[0].State().At.Time.Compare(end) >= 0 })
					b.StopTimer()
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*reply), "ns/event")
					cancel()
					running.Wait()
				})
			}
		}
	}
}

// poll waits until something holds, at which it looks at each interval.
func poll(interval time.Duration, holds func() bool) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !holds() {
		<-tick.C
	}
}
