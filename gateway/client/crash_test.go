package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/streampb"
)

// logs are those of two partitions, with heads that several changes share.
func logs() [][]string {
	return [][]string{{"b1", "b2", "b3", "c1", "d1", "d2", "e1"}, {"b4", "c2", "c3", "c4", "f1"}}
}

// serve plays a log from where the client stands, two changes at a time, and ends the session after so many messages; negative: never.
func serve(v *visit, cut int) {
	v.t.Helper()
	send := func(f func()) bool {
		if cut == 0 {
			v.close(errBroken)
			return false
		}
		cut--
		f()
		return true
	}
	if !send(func() { v.welcome(2) }) {
		return
	}
	have := []*streampb.Position{at("a"), at("a")}
	for _, p := range v.hello.GetPositions() {
		have[p.GetPartition()] = p.GetPosition()
	}
	for p := range have {
		if !send(func() { v.batch(batch(uint32(p), have[p], have[p])) }) {
			return
		}
	}
	for left := true; left; {
		left = false
		for p, log := range logs() {
			var next []string
			for _, place := range log {
				if c := strings.Compare(place[:1], string(have[p].GetHead())); (c > 0 || c == 0 && !strings.Contains(name(have[p]), place[1:])) && len(next) < 2 {
					next = append(next, place)
				}
			}
			if len(next) == 0 {
				continue
			}
			left = true
			to := have[p]
			for _, place := range next {
				if place[0] == to.GetHead()[0] {
					to = at(name(to) + place[1:])
				} else {
					to = at(place)
				}
			}
			if !send(func() { v.batch(batch(uint32(p), have[p], to, next...)) }) {
				return
			}
			have[p] = to
		}
	}
	if cut >= 0 {
		v.close(errBroken)
	}
}

// TestNodeThatGoesAwayAtAnyPointLosesAndRepeatsNothing cuts one session, and the next, after each message that it has.
func TestNodeThatGoesAwayAtAnyPointLosesAndRepeatsNothing(t *testing.T) {
	const messages = 12
	for first := range messages {
		for second := range messages {
			n, j := newNode(t), newJournal()
			p := start(t, config(j, n.address), j.handle)
			serve(n.accept(t), first)
			serve(n.accept(t), second)
			v := n.accept(t)
			serve(v, -1)
			j.wait(t, "every change", func() bool { return len(j.lines) >= 12 })
			p.end()
			for partition, log := range logs() {
				var got []string
				for _, line := range j.lines {
					if place, ok := strings.CutPrefix(line, fmt.Sprintf("%d:", partition)); ok {
						got = append(got, place)
					}
				}
				if !slices.Equal(got, log) {
					t.Fatalf("cut after %d and %d messages: partition %d got %q, want %q", first, second, partition, got, log)
				}
			}
		}
	}
}

// TestProgramThatStopsAtAnyPointGoesOnWhereItWas stops a program within its handlers, keeps its positions as a program would, and begins again
// with them.
func TestProgramThatStopsAtAnyPointGoesOnWhereItWas(t *testing.T) {
	for stopAt := range 12 {
		n, j := newNode(t), newJournal()
		handled := make(chan struct{}, 100)
		stopping := func(ctx context.Context, c client.Change) error {
			handled <- struct{}{}
			if len(handled) > stopAt { // this one is not dealt with any more
				<-ctx.Done()
				return ctx.Err()
			}
			return j.handle(ctx, c)
		}
		cfg := config(j, n.address)
		cfg.Concurrency = 1
		p := start(t, cfg, stopping)
		serve(n.accept(t), -1)
		for range stopAt + 1 {
			<-handled
		}
		p.end()
		cfg = config(j, n.address)
		cfg.Start = client.StartResume
		stood, ok := p.Positions()
		if !ok {
			t.Fatal("the positions are not known")
		}
		cfg.Positions = &stood
		p = start(t, cfg, j.handle)
		serve(n.accept(t), -1)
		j.wait(t, "every change", func() bool { return len(j.lines) >= 12 })
		p.end()
		sorted := slices.Sorted(slices.Values(j.lines))
		if len(sorted) != 12 || len(slices.Compact(sorted)) != 12 {
			t.Fatalf("stopped at %d: %q", stopAt, j.lines)
		}
	}
}
