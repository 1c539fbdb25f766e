package member_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/cluster/member"
	"github.com/mongostream/streamer/fault"
)

// A stage is what happens when, with a clock that goes on while the machine is suspended, which the
// bubble's does not.
type stage struct {
	*clustertest.Transcript

	suspended atomic.Int64
}

func (st *stage) clock() time.Duration { return st.Now() + time.Duration(st.suspended.Load()) }

func (st *stage) suspend(d time.Duration) {
	st.Say("the machine is suspended for %s", d)
	st.suspended.Add(int64(d))
}

// Everybody has a moment of its own, so that what happens at once is told in one order.
const (
	serveMoment = time.Millisecond
	renewMoment = 2700 * time.Microsecond // no partition ends then
)

// An answer is what the registry answers to a request, and after how long. Without an error it
// grants what it is asked for.
type answer struct {
	after time.Duration
	err   error
	ttl   time.Duration // of a renewal; defaults to the scenario's
	late  time.Duration // how long a renewal's answer is under way
}

// never is an answer that does not come.
const never = time.Hour

// A scenario is what happens to a Solo.
type scenario struct {
	ttl      time.Duration
	takeOver bool
	claims   []answer // the first answers; the others grant at once
	renews   []answer // the first answers; the others grant at once
	release  answer
	suspend  map[time.Duration]time.Duration // when, for how long
	stop     time.Duration                   // when the node is asked to stop; defaults to never
	drain    time.Duration                   // how long serve takes to end
	serve    error                           // what serve returns

	takes    map[time.Duration]change.Partition // when somebody takes a partition out of the claim
	fences   map[time.Duration]change.Partition // when the store refuses a mark of a partition
	reclaims []answer                           // the first answers; the others grant at once
	resumes  []answer                           // the first answers; the others are nil at once
	slow     time.Duration                      // how long serve takes to end one term
	deaf     bool                               // serve takes no further terms
	adopted  bool                               // an operator has adopted the store when it is claimed anew
}

// A registry answers as its scenario says, and is the node too.
type registry struct {
	*stage
	scenario

	solo *member.Solo
	over atomic.Bool // serve has been asked to end

	claimed uint64 // times

	watchers sync.WaitGroup

	partitions struct {
		sync.Mutex

		taken    map[change.Partition]bool
		revision uint64
		terms    map[change.Partition]change.Term // that are served
	}
}

func (r *registry) reply(ctx context.Context, name string, a answer) error {
	timer := time.NewTimer(a.after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		r.Say("%s: no answer, given up", name)
		return fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	if a.err != nil {
		r.Say("%s: %v", name, a.err)
	}
	return a.err
}

func (r *registry) Claim(
	ctx context.Context, m cluster.Identity, n int, ttl time.Duration, takeOver bool,
) ([]change.Epoch, error) {
	var a answer
	if len(r.claims) > 0 {
		a, r.claims = r.claims[0], r.claims[1:]
	}
	if err := r.reply(ctx, "claim", a); err != nil {
		return nil, err
	}
	r.Say("claim: granted to %s/%s for %s, take over %t", m.Node, m.Process, ttl, takeOver)
	first := change.Epoch{Incarnation: 1, Revision: 100 + 50*r.claimed}
	if r.claimed > 0 && r.adopted {
		first = change.Epoch{Incarnation: 2, Revision: 1}
	}
	r.claimed++
	epochs := make([]change.Epoch, n)
	for i := range epochs {
		epochs[i] = change.Epoch{Incarnation: first.Incarnation, Revision: first.Revision + uint64(i)}
	}
	return epochs, nil
}

func (r *registry) Renew(ctx context.Context) (time.Duration, []change.Partition, error) {
	a := answer{ttl: r.ttl}
	if len(r.renews) > 0 {
		a, r.renews = r.renews[0], r.renews[1:]
	}
	if a.ttl == 0 {
		a.ttl = r.ttl
	}
	if a.after > 0 {
		r.Say("renew: sent")
	}
	a.after += renewMoment
	if err := r.reply(ctx, "renew", a); err != nil {
		return 0, nil, err
	}
	r.partitions.Lock()
	taken := slices.Sorted(maps.Keys(r.partitions.taken))
	r.partitions.Unlock()
	if len(taken) > 0 {
		r.Say("renew: granted for %s, without %v", a.ttl, taken)
	} else {
		r.Say("renew: granted for %s", a.ttl)
	}
	time.Sleep(a.late)
	return a.ttl, taken, nil
}

func (r *registry) Reclaim(ctx context.Context, partitions []change.Partition) ([]change.Epoch, error) {
	var a answer
	if len(r.reclaims) > 0 {
		a, r.reclaims = r.reclaims[0], r.reclaims[1:]
	}
	if err := r.reply(ctx, "reclaim", a); err != nil {
		return nil, err
	}
	r.partitions.Lock()
	defer r.partitions.Unlock()
	epochs := make([]change.Epoch, len(partitions))
	for i, p := range partitions {
		r.partitions.revision++
		epochs[i] = change.Epoch{Incarnation: 1, Revision: 200 + r.partitions.revision}
		delete(r.partitions.taken, p)
	}
	r.Say("reclaim: granted %v", partitions)
	return epochs, nil
}

// take takes a partition out of the claim.
func (r *registry) take(p change.Partition) {
	r.Say("somebody takes partition %d out of the claim", p)
	r.partitions.Lock()
	defer r.partitions.Unlock()
	r.partitions.taken[p] = true
}

// fence ends the serving of a partition as a refused mark does.
func (r *registry) fence(p change.Partition) {
	r.partitions.Lock()
	term, served := r.partitions.terms[p]
	delete(r.partitions.terms, p)
	r.partitions.Unlock()
	r.Say("the store refuses a mark of partition %d, served: %t", p, served)
	if served {
		r.solo.Return(term)
	}
}

// resume takes further terms.
func (r *registry) resume(ctx context.Context, terms []change.Term) error {
	var a answer
	if len(r.resumes) > 0 {
		a, r.resumes = r.resumes[0], r.resumes[1:]
	}
	if err := r.reply(ctx, "resume", a); err != nil {
		return err
	}
	for _, term := range terms {
		r.Say("resume: partition %d, epoch %s", term.Partition, term.Epoch)
	}
	r.watch(terms)
	return nil
}

// served returns one of the terms that are served.
func (r *registry) served() change.Term {
	r.partitions.Lock()
	defer r.partitions.Unlock()
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(r.partitions.terms))) {
		return r.partitions.terms[p]
	}
	panic("nothing is served")
}

// watch serves terms until they end one by one.
func (r *registry) watch(terms []change.Term) {
	for _, term := range terms {
		r.partitions.Lock()
		r.partitions.terms[term.Partition] = term
		r.partitions.Unlock()
		r.watchers.Go(func() {
			<-term.Context.Done()
			time.Sleep(serveMoment*time.Duration(1+term.Partition) + r.slow)
			r.partitions.Lock()
			served := r.partitions.terms[term.Partition].Epoch == term.Epoch
			if served {
				delete(r.partitions.terms, term.Partition)
			}
			r.partitions.Unlock()
			if r.over.Load() || !served {
				return
			}
			r.Say("serve: partition %d, epoch %s ends: %v", term.Partition, term.Epoch, context.Cause(term.Context))
			r.solo.Return(term)
			r.solo.Return(term) // once more harms nobody
		})
	}
}

func (r *registry) Release(ctx context.Context) error {
	if err := r.reply(ctx, "release", r.release); err != nil {
		return err
	}
	r.Say("release: done")
	return nil
}

// serve is a node that tells what becomes of its terms.
func (r *registry) serve(ctx context.Context, terms []change.Term) error {
	time.Sleep(serveMoment)
	for _, term := range terms {
		r.Say("serve: partition %d, epoch %s", term.Partition, term.Epoch)
	}
	r.watch(terms)
	defer r.over.Store(true)
	lost := func() bool { return errors.Is(context.Cause(ctx), change.ErrTermLost) }
	<-ctx.Done()
	r.over.Store(true)
	term := r.served()
	if !lost() {
		time.Sleep(serveMoment)
		r.Say("serve: asked to stop")
		timer := time.NewTimer(r.drain)
		defer timer.Stop()
		select {
		case <-timer.C:
			r.Say("serve: ends, its terms live: %t", term.Context.Err() == nil)
			return r.scenario.serve
		case <-term.Context.Done():
		}
	}
	time.Sleep(serveMoment)
	r.Say("serve: its terms end: %v", context.Cause(term.Context))
	time.Sleep(r.drain)
	r.Say("serve: ends")
	if r.scenario.serve != nil {
		return r.scenario.serve
	}
	return context.Cause(term.Context)
}

func (s scenario) play(t *testing.T) string {
	var tr *stage
	synctest.Test(t, func(t *testing.T) {
		tr = &stage{Transcript: clustertest.BeginTranscript()}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &registry{stage: tr, scenario: s}
		r.partitions.taken, r.partitions.terms = map[change.Partition]bool{}, map[change.Partition]change.Term{}
		if r.ttl == 0 {
			r.ttl = 10 * time.Second
		}
		cfg := member.SoloConfig{
			Member:     cluster.Identity{Node: "node-a", Process: "p1"},
			Partitions: 2,
			TTL:        s.ttl,
			TakeOver:   s.takeOver,
			Clock:      tr.clock,
			Log:        tr.Logger(),
			Resume:     r.resume,
		}
		if s.deaf {
			cfg.Resume = nil
		}
		r.solo = member.NewSolo(cfg, r)
		if s.stop > 0 {
			time.AfterFunc(s.stop, func() {
				tr.Say("the node is asked to stop")
				cancel()
			})
		}
		for at, d := range s.suspend {
			time.AfterFunc(at, func() { tr.suspend(d) })
		}
		for at, p := range s.takes {
			time.AfterFunc(at, func() { r.take(p) })
		}
		for at, p := range s.fences {
			time.AfterFunc(at, func() { r.fence(p) })
		}
		err := r.solo.Run(ctx, r.serve)
		tr.Say("run: %v", err)
		if code := fault.Of(err); code != "" {
			tr.Say("code: %s", code)
		}
		r.watchers.Wait()
	})
	return tr.String()
}

func TestSoloTranscripts(t *testing.T) {
	held := answer{err: &cluster.HeldError{Node: "node-b", Process: "p0", TTL: 7 * time.Second}}
	heldLong := answer{err: &cluster.HeldError{Node: "node-b", Process: "p0", TTL: 30 * time.Second}}
	fails := answer{err: errors.New("no connection")}
	lost := answer{err: fmt.Errorf("lease 7: %w", cluster.ErrLost)}
	times := func(n int, a answer) []answer {
		answers := make([]answer, n)
		for i := range answers {
			answers[i] = a
		}
		return answers
	}
	after := func(answers []answer, more ...answer) []answer { return append(answers, more...) }
	at := func(moment time.Duration, p change.Partition) map[time.Duration]change.Partition {
		return map[time.Duration]change.Partition{moment: p}
	}
	stop := 9*time.Second + 100*time.Millisecond
	for name, s := range map[string]scenario{
		"renewals":                   {stop: 7*time.Second + 100*time.Millisecond},
		"renewals-of-a-minute":       {ttl: time.Minute, stop: 50*time.Second + 100*time.Millisecond},
		"raised-ttl":                 {ttl: time.Second, renews: times(2, answer{ttl: 5 * time.Second}), stop: 3*time.Second + 100*time.Millisecond},
		"slow-answers":               {renews: times(9, answer{after: 1500 * time.Millisecond}), stop: 9*time.Second + 100*time.Millisecond},
		"failing-then-renewed":       {renews: times(5, fails), stop: 8*time.Second + 100*time.Millisecond},
		"silent-then-renewed":        {renews: times(1, answer{after: never}), stop: 8*time.Second + 100*time.Millisecond},
		"failing-for-long":           {renews: times(60, fails), stop: 40 * time.Second},
		"failing-while-stopping":     {renews: times(99, fails), stop: 20 * time.Second, drain: 15 * time.Second, release: fails},
		"silent-for-long":            {renews: times(99, answer{after: never}), stop: 40 * time.Second, release: answer{after: never}},
		"away-then-claimed-anew":     {renews: after(times(20, fails), lost), stop: 20 * time.Second},
		"away-then-answered-late":    {renews: after(times(15, fails), answer{after: 1500 * time.Millisecond, err: lost.err}), stop: 20 * time.Second},
		"away-then-held":             {renews: after(times(20, fails), lost), claims: []answer{{}, held}},
		"away-then-anew-unanswered":  {renews: after(times(20, fails), lost), claims: []answer{{}, {after: never}, fails}, stop: 25 * time.Second},
		"away-then-slow":             {renews: after(times(4, answer{after: never}), answer{after: 1900 * time.Millisecond, err: lost.err}), claims: []answer{{}, {after: 2400 * time.Millisecond}}, slow: 300 * time.Microsecond, stop: 20 * time.Second},
		"away-then-in-its-own-way":   {renews: after(times(20, fails), lost), claims: []answer{{}, {after: 2 * time.Second}}, fences: at(11900*time.Millisecond, 0), reclaims: times(1, answer{after: 1600 * time.Millisecond, err: &cluster.HeldError{Node: "node-a", Process: "p1", TTL: 10 * time.Second}}), stop: 20 * time.Second},
		"away-then-late-reclaim":     {renews: after(times(20, fails), lost), claims: []answer{{}, {after: 2 * time.Second}}, fences: at(11900*time.Millisecond, 0), reclaims: times(1, answer{after: 2600 * time.Millisecond, err: lost.err}), stop: 20 * time.Second},
		"away-then-fenced":           {renews: after(times(20, fails), lost), claims: []answer{{}, {after: 2 * time.Second}}, fences: at(12500*time.Millisecond, 0), stop: 20 * time.Second},
		"away-then-no-take-over":     {takeOver: true, renews: after(times(20, fails), lost), stop: 15 * time.Second},
		"away-then-adopted":          {renews: after(times(20, fails), lost), adopted: true},
		"away-then-nothing-there":    {renews: after(times(20, fails), lost), claims: []answer{{}, lost}},
		"away-then-fenced-first":     {renews: after(times(20, fails), answer{after: time.Second, err: lost.err}), fences: at(13*time.Second, 0), reclaims: times(1, lost), stop: 20 * time.Second},
		"away-then-suspended":        {renews: times(99, fails), suspend: map[time.Duration]time.Duration{20 * time.Second: time.Minute}},
		"away-then-lost-at-the-stop": {renews: after(times(20, fails), lost), stop: 11800 * time.Millisecond, drain: 5 * time.Second},
		"lost":                       {renews: after(times(1, answer{}), lost)},
		"lost-while-stopping":        {renews: after(times(1, answer{}), lost), stop: 3*time.Second + 100*time.Millisecond, drain: 5 * time.Second},
		"lost-and-serve-fails":       {renews: times(1, lost), drain: time.Second, serve: errors.New("disk on fire")},
		"held-then-free":             {claims: times(5, held), stop: 3*time.Second + 100*time.Millisecond},
		"held-for-ever":              {claims: times(999, held)},
		"held-for-longer":            {claims: times(999, heldLong)},
		"held-then-stopped":          {claims: times(999, held), stop: 1100 * time.Millisecond},
		"take-over":                  {takeOver: true, stop: 1100 * time.Millisecond},
		"claim-fails":                {claims: times(1, fails)},
		"claim-without-answer":       {claims: times(1, answer{after: never})},
		"claim-slow":                 {claims: times(1, answer{after: 5 * time.Second}), stop: 8*time.Second + 100*time.Millisecond},
		"stopped-while-claimed":      {claims: times(1, answer{after: never}), stop: 1100 * time.Millisecond},
		"suspended":                  {suspend: map[time.Duration]time.Duration{3100 * time.Millisecond: time.Minute}},
		"suspended-while-asked":      {renews: times(1, answer{after: 700 * time.Millisecond}), suspend: map[time.Duration]time.Duration{2600 * time.Millisecond: time.Minute}},
		"suspended-shortly":          {suspend: map[time.Duration]time.Duration{3100 * time.Millisecond: 3 * time.Second}, stop: 5*time.Second + 100*time.Millisecond},
		"long-drain":                 {stop: 1100 * time.Millisecond, drain: 12 * time.Second},
		"serve-fails":                {stop: 1100 * time.Millisecond, serve: errors.New("disk on fire")},
		"release-fails":              {stop: 1100 * time.Millisecond, release: fails},
		"partition-taken":            {takes: at(3*time.Second, 1), stop: stop},
		"partition-fenced":           {fences: at(3*time.Second, 0), stop: stop},
		"partition-fenced-at-once":   {fences: at(100*time.Millisecond, 0), stop: stop},
		"partition-taken-and-fenced": {takes: at(3*time.Second, 1), fences: at(3*time.Second+500*time.Millisecond, 1), stop: stop},
		"partition-fenced-for-ever": {fences: map[time.Duration]change.Partition{
			3 * time.Second: 0, 3100 * time.Millisecond: 0, 4100 * time.Millisecond: 0, 5200 * time.Millisecond: 0,
		}, stop: stop},
		"partition-slow-to-end":    {takes: at(3*time.Second, 1), slow: 1500 * time.Millisecond, stop: stop},
		"both-partitions-taken":    {takes: map[time.Duration]change.Partition{3 * time.Second: 1, 3100 * time.Millisecond: 0}, stop: stop},
		"reclaim-fails":            {fences: at(3*time.Second, 0), reclaims: times(2, fails), stop: stop},
		"reclaim-unanswered":       {fences: at(3*time.Second, 0), reclaims: times(1, answer{after: never}), stop: 15 * time.Second},
		"reclaim-held":             {fences: at(3*time.Second, 0), reclaims: times(1, held)},
		"reclaim-lost":             {fences: at(3*time.Second, 0), reclaims: times(1, lost)},
		"resume-fails":             {fences: at(3*time.Second, 0), resumes: times(2, fails), stop: stop},
		"fenced-while-stopping":    {fences: at(5*time.Second, 0), stop: 4 * time.Second, drain: 4 * time.Second},
		"stopped-while-reclaimed":  {fences: at(3*time.Second, 0), reclaims: times(1, answer{after: 2 * time.Second}), stop: 4 * time.Second, drain: 3 * time.Second},
		"taken-told-after-reclaim": {takes: at(3900*time.Millisecond, 1), fences: at(4100*time.Millisecond, 1), renews: []answer{{}, {late: 300 * time.Millisecond}}, stop: stop},
		"nobody-resumes":           {takes: at(3*time.Second, 1), deaf: true, stop: stop},
		"release-unanswered":       {stop: 1100 * time.Millisecond, release: answer{after: never}},
	} {
		t.Run(name, func(t *testing.T) {
			clustertest.CompareTranscript(t, "solo/"+name, s.play(t))
		})
	}
}
