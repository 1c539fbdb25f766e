package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/dev/workload"
)

func TestCrashesLoseNothingAndRepeatOnlyWhatNoMarkCovers(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			crashes(t, backend, 20)
		})
	}
}

// A series is a node that is killed and started again and again under load, and everything that was
// seen of it.
type series struct {
	t        *testing.T
	lab      *lab
	random   *rand.Rand
	address  string
	ledger   workload.Ledger
	printed  *workload.Check // of what all processes have printed
	follower *follower
	followed *workload.Check
	last     place // of the follower's last event
	lives    []*life
	deck     []int // kinds of round that are still to come before any comes again
}

// A life is what was seen of one process.
type life struct {
	begun  time.Time
	ran    bool                       // it owned the partitions and read the marks
	from   map[change.Partition]place // the marks that it began behind
	to     map[change.Partition]place // the marks that it left
	pipe   sync.Mutex                 // held while nobody reads its standard output
	mu     sync.Mutex
	events []sighting
	err    error
}

// crashes kills a node under load at random moments and holds everything that arrives against what
// was written.
func crashes(t *testing.T, backend string, kills int) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rate := 2000
	if raced {
		rate = 1000
	}
	s := &series{
		t: t, lab: newLab(t, backend).with("STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=200ms"),
		random: rand.New(rand.NewPCG(seed, 0)), address: devmongotest.FreeAddress(),
	}
	s.lab = s.lab.with("STREAMER_HTTP_LISTEN=" + s.address)
	s.printed, s.followed = workload.NewCheck(&s.ledger), workload.NewCheck(&s.ledger)
	s.follower = newFollower("http://"+s.address, s.follow)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var following, writing sync.WaitGroup
	defer following.Wait()
	writer := workload.NewWriter(workload.Config{URI: s.lab.uri, DB: s.lab.database, Rate: rate}, &s.ledger)
	writerContext, stopWriter := context.WithCancel(ctx)
	defer writing.Wait()
	defer stop()

	first, p := s.begin()
	p.await(nodeRuns)
	following.Go(func() { s.follower.run(ctx) })
	until(t, "the follower is connected", func() bool { return s.follower.connected() > 0 })
	writing.Go(func() {
		if err := writer.Run(writerContext); err != nil {
			t.Error(err)
		}
	})
	until(t, "the follower sees events", func() bool { n, _ := s.followed.Delivered(); return n > 0 })
	s.end(first, p, 0, 2200*time.Millisecond)
	waits := []int{kills / 2}
	for i := 1; i < kills; i++ {
		if i%20 == 5 {
			s.calm(rate)
		}
		s.round(slices.Contains(waits, i), slices.Contains(waits, i+1))
	}

	final, p := s.begin("--take-over")
	p.await(nodeRuns)
	s.marksBefore(final)
	stopWriter()
	writing.Wait()
	arrived := comes(func() bool {
		return s.printed.Missing() == 0 && (s.followed.Missing() == 0 || s.follower.failure() != nil)
	})
	if !arrived {
		t.Error("not everything has arrived in time")
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d of the planned stop at the end", code)
	}
	s.marksAfter(final)
	stop()
	following.Wait()
	s.judge()
}

// begin starts a process.
func (s *series) begin(args ...string) (*life, *process) {
	return s.beginOn(s.lab, args...)
}

func (s *series) beginOn(l *lab, args ...string) (*life, *process) {
	one := &life{begun: time.Now()}
	s.lives = append(s.lives, one)
	return one, l.printer(func(line string) {
		event, err := sight(line)
		if err == nil {
			err = s.printed.JSON([]byte(line), time.Now())
		}
		one.pipe.Lock()
		defer one.pipe.Unlock()
		one.mu.Lock()
		defer one.mu.Unlock()
		one.events = append(one.events, event)
		if one.err == nil {
			one.err = err
		}
	}, args...)
}

// round starts a process and kills it: as it starts, while it delivers again what no mark covers,
// or about when it saves marks, which it first does after two seconds; then sometimes nobody has
// read its output for a while, so that it is full of what is not acknowledged. A process that waits
// does not take over: it waits for its predecessor's claim to run out, which is soon where brief
// says so. A brief one is killed before it needs to renew its claim, which a machine that is short
// of breath might keep it from.
func (s *series) round(waits, brief bool) {
	l, args := s.lab, []string{"--take-over"}
	if waits {
		args = nil
	}
	if brief {
		l = l.with("STREAMER_CLUSTER_LEASE_TTL=2s")
	}
	one, p := s.beginOn(l, args...)
	upTo := func(d time.Duration) time.Duration { return time.Duration(s.random.Int64N(int64(d))) }
	switch kind := s.deal(); {
	case brief:
		s.end(one, p, 0, upTo(500*time.Millisecond))
	case kind < 3:
		s.end(one, p, 500*time.Millisecond+upTo(1400*time.Millisecond), 2100*time.Millisecond+upTo(400*time.Millisecond))
	case waits, kind < 6:
		s.end(one, p, 0, 1900*time.Millisecond+upTo(600*time.Millisecond))
	case kind < 8:
		s.end(one, p, 0, upTo(1500*time.Millisecond))
	default:
		s.endAfter(p, upTo(400*time.Millisecond))
		if p.noted(nodeRuns) {
			s.marksBefore(one)
		}
		s.marksAfter(one)
	}
}

// calm lets a process come near the end of the log and save checkpoints before it is killed. On a
// machine that is too slow for the load, a long series would otherwise never get there: they are
// first saved two seconds after a start, and few processes here live longer.
func (s *series) calm(rate int) {
	s.t.Helper()
	one, p := s.begin("--take-over")
	p.await(nodeRuns)
	s.marksBefore(one)
	until(s.t, "the node keeps up with the writer", func() bool { return s.printed.Missing() < rate })
	until(s.t, "it saves marks", func() bool {
		for partition, m := range s.lab.stored() {
			if m.Position.Ref() != one.from[partition] {
				return true
			}
		}
		return false
	})
	p.kill()
	s.marksAfter(one)
}

// deal returns one of ten kinds of round, each once before any comes again.
func (s *series) deal() (kind int) {
	if len(s.deck) == 0 {
		s.deck = s.random.Perm(10)
	}
	kind, s.deck = s.deck[0], s.deck[1:]
	return kind
}

// end kills a process some time after it has begun to deliver, and reads nothing of its output from
// the moment full on, if that is not 0.
func (s *series) end(one *life, p *process, full, after time.Duration) {
	p.await(nodeRuns)
	s.marksBefore(one)
	if full > 0 {
		s.pass(p, full)
		one.pipe.Lock()
	}
	s.pass(p, after-full)
	p.signal(os.Kill)
	if full > 0 {
		one.pipe.Unlock() // what is in the pipe has been written, and acknowledged
	}
	p.wait()
	s.marksAfter(one)
}

// endAfter kills a process some time after its start.
func (s *series) endAfter(p *process, after time.Duration) {
	s.pass(p, after)
	p.kill()
}

// pass lets time go by until a moment that has nothing to do with what the process does.
func (s *series) pass(p *process, length time.Duration) {
	s.t.Helper()
	moment := time.NewTimer(length)
	defer moment.Stop()
	select {
	case <-moment.C:
	case <-p.ended:
		s.t.Fatal("the process ended by itself")
	}
}

// marksBefore notes the marks that a process that runs began behind. Nobody else can save marks any
// more, and its own tell when they were saved: then the predecessor's last ones are those.
func (s *series) marksBefore(one *life) {
	one.ran = true
	one.from = map[change.Partition]place{}
	for p, m := range s.lab.stored() {
		if m.At.Before(one.begun) {
			one.from[p] = m.Position.Ref()
		} else if i := len(s.lives) - 2; i >= 0 {
			one.from[p] = s.lives[i].to[p]
		}
	}
}

func (s *series) marksAfter(one *life) {
	one.to = map[change.Partition]place{}
	for p, m := range s.lab.stored() {
		one.to[p] = m.Position.Ref()
	}
}

// follow takes what the follower sees.
func (s *series) follow(data string) error {
	event, err := sight(data)
	switch {
	case err != nil:
		return err
	case event.place.Compare(s.last) <= 0: // of a replica set, no two events have the same head
		return fmt.Errorf("it is not behind the one before: %s", data)
	}
	s.last = event.place
	return s.followed.JSON([]byte(data), time.Now())
}

// judge holds everything that was seen against the promises.
func (s *series) judge() {
	if err := s.follower.failure(); err != nil {
		s.t.Errorf("follower: %v", err)
	}
	followed, printed := s.followed.Report(), s.printed.Report()
	if followed.Missing != 0 || followed.OutOfOrder != 0 || followed.Duplicates != 0 {
		s.t.Errorf("follower: %+v", followed)
	}
	if printed.Missing != 0 || printed.OutOfOrder != 0 {
		s.t.Errorf("standard output: %+v", printed)
	}
	log := s.log()
	repeated, moved := 0, 0
	for i, one := range s.lives {
		if one.err != nil {
			s.t.Errorf("life %d: %v", i, one.err)
		}
		s.judgeOrder(i, one, log)
		if i > 0 {
			moved += s.judgeMarks(i, s.lives[i-1].to, one)
		}
		repeated += len(one.events)
	}
	for _, events := range log {
		repeated -= len(events)
	}
	s.t.Logf("%d lives, %d changes, %d delivered again, %d times a life moved marks, %d connections of the follower",
		len(s.lives), printed.Written, repeated, moved, s.follower.connected())
	if repeated == 0 || repeated != printed.Duplicates || moved < 2 {
		s.t.Errorf("%d delivered again (%d by documents), marks moved in %d lives: nothing was put to the test", repeated, printed.Duplicates, moved)
	}
}

// log returns the events of each partition in the order of the log.
func (s *series) log() map[change.Partition][]place {
	log := map[change.Partition][]place{}
	for _, one := range s.lives {
		for _, e := range one.events {
			log[e.partition] = append(log[e.partition], e.place)
		}
	}
	for p, events := range log {
		slices.SortFunc(events, place.Compare)
		log[p] = slices.Compact(events)
	}
	return log
}

// judgeOrder holds one process's output against the log: of each partition it is a stretch without
// holes that begins right behind the mark, and each document's changes are in order.
func (s *series) judgeOrder(number int, one *life, log map[change.Partition][]place) {
	if !one.ran && len(one.events) > 0 {
		s.t.Errorf("life %d: %d events before it ran", number, len(one.events))
	}
	next := map[change.Partition]int{}
	seqs := map[int64]int64{}
	for _, e := range one.events {
		expected, begun := next[e.partition]
		if !begun {
			expected = slices.IndexFunc(log[e.partition], func(p place) bool { return p.Compare(one.from[e.partition]) > 0 })
		}
		if expected < 0 || expected >= len(log[e.partition]) || log[e.partition][expected] != e.place {
			s.t.Errorf("life %d, partition %d: after %d events something else was to come than %s of %d (begun: %v)",
				number, e.partition, expected, e.op, e.document, begun)
			return
		}
		next[e.partition] = expected + 1
		before, known := seqs[e.document]
		if known && e.op != "delete" && e.seq != before+1 || before < 0 {
			s.t.Errorf("life %d: change %d of document %d after change %d", number, e.seq, e.document, before)
			return
		}
		seqs[e.document] = e.seq
		if e.op == "delete" {
			seqs[e.document] = -1
		}
	}
}

// judgeMarks looks whether marks moved, which must not be backwards.
func (s *series) judgeMarks(number int, before map[change.Partition]place, one *life) (moved int) {
	for _, step := range []struct{ from, to map[change.Partition]place }{{before, one.from}, {before, one.to}, {one.from, one.to}} {
		for p, from := range step.from {
			to, there := step.to[p]
			if step.to == nil {
				continue
			}
			if !there || from.Compare(to) > 0 {
				s.t.Errorf("life %d: the mark of partition %d has moved back", number, p)
			}
			if to != from {
				moved = 1
			}
		}
	}
	return moved
}
