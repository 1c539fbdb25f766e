package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// The parts of a round.
const (
	writing = 7 * time.Second // everybody acts
	// Looks at copies are counted, because a frozen machine ages nothing.
	look     = 200 * time.Millisecond // between two looks at the copies
	settling = 600                    // looks while only the hot documents change, unless all copies are complete before
	believed = 25                     // looks in which a copy that says that it is complete may yet become so
	patience = 300                    // looks until a copy says so
)

// A judge runs rounds and compares copies at the end of each.
type judge struct {
	settings

	cluster *cluster
	writer  *writer
	target  *receiver // of HTTP sinks
	out     io.Writer
	readers []*reader
	sinks   []*sink
	starved map[*replica]bool
	judged  map[string]int
	found   map[string]map[string]int // by kind and class
}

func (j *judge) begin(ctx context.Context) (err error) {
	if j.target, err = newReceiver(); err != nil {
		return err
	}
	j.writer = newWriter(j.cluster)
	return j.writer.load(ctx)
}

func (j *judge) count(kind, class string) {
	if j.found[kind] == nil {
		j.found[kind] = make(map[string]int)
	}
	j.found[kind][class]++
}

// round lets everybody act for a while, and then judges.
func (j *judge) round(ctx context.Context, round int) error {
	j.sinks = newSinks(j, round)
	j.target.serve(j.sinks)
	j.calm(false)
	acting, over := context.WithTimeout(ctx, writing)
	defer over()
	written, disturbed := make(chan error, 1), make(chan struct{})
	go func() { written <- j.writer.act(acting, round) }()
	if err := j.cluster.restart(j.sinks); err != nil { // the sinks of a round are new, and begin with a snapshot
		return err
	}
	following, unfollow := context.WithCancel(ctx)
	defer unfollow()
	for _, s := range j.sinks {
		if s.kind == "file" {
			go s.follow(following)
		}
		if j.wide {
			go j.cluster.rewinds(acting, dice(j.seed, "rewinds "+s.name, round), &s.calm, func() string { return "sink/" + s.name })
		}
	}
	go func() {
		defer close(disturbed)
		if !j.settings.calm && sleep(acting, 500*time.Millisecond) {
			j.cluster.disturb(acting, round, j.sinks)
		}
	}()
	j.join(ctx, round)
	<-disturbed
	if err := <-written; err != nil {
		return err
	}
	j.calm(true)
	if err := j.cluster.ready(ctx, j.sinks); err != nil {
		return err
	}
	j.starve(ctx, round)
	collections, err := j.writer.mark(ctx, round)
	if err != nil {
		return err
	}
	return j.compare(ctx, round, collections)
}

// join starts readers at random times of a round.
func (j *judge) join(ctx context.Context, round int) {
	r := dice(j.seed, "joins", round)
	begun := time.Now()
	var kinds []string
	for _, kind := range []string{"grpc", "grpc", "live", "client", "sse", "sse", "owned"} {
		if strings.Contains(j.only, kind) {
			kinds = append(kinds, kind)
		}
	}
	r.Shuffle(len(kinds), func(a, b int) { kinds[a], kinds[b] = kinds[b], kinds[a] })
	for i, kind := range kinds {
		at := writing*time.Duration(i)/time.Duration(len(kinds)+1) + upTo(r, 700*time.Millisecond)
		if !sleep(ctx, time.Until(begun.Add(at))) {
			return
		}
		j.readers = append(j.readers, startReader(ctx, j, kind, round, i))
	}
}

// calm makes readers and targets behave well, or not.
func (j *judge) calm(calm bool) {
	for _, r := range j.readers {
		r.calm.Store(calm)
	}
	for _, s := range j.sinks {
		s.calm.Store(calm)
	}
}

// replicas returns all copies that are judged.
func (j *judge) replicas() (all []*replica) {
	for _, r := range j.readers {
		all = append(all, r.copies...)
	}
	for _, s := range j.sinks {
		all = append(all, s.copies()...)
	}
	return all
}

// look updates copies that do not get changes, or not the end of snapshots.
func (j *judge) look(ctx context.Context) {
	all := j.cluster.askNodes(ctx)
	for _, r := range j.readers {
		r.look(all)
	}
	for _, s := range j.sinks {
		s.look(all)
	}
}

// starve changes only the hot documents until the copies are complete, and notes those that do not
// become so.
func (j *judge) starve(ctx context.Context, round int) {
	hot, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); j.writer.heat(hot, round, 12*time.Millisecond) }()
	for looks := 0; ; looks++ {
		j.look(ctx)
		j.starved = make(map[*replica]bool)
		for _, c := range j.replicas() {
			if !c.isWhole() && c.kind != "owned" { // whose snapshots are many
				j.starved[c] = true
			}
		}
		if len(j.starved) == 0 || looks == settling || !sleep(hot, look) {
			break
		}
	}
	stop()
	<-done
}

// compare waits for each copy to be correct, and reports those that do not become so.
func (j *judge) compare(ctx context.Context, round int, collections []string) error {
	facts, err := j.writer.facts(ctx, collections)
	if err != nil {
		return err
	}
	complete := make(map[*replica]int) // for how many looks a copy has said so
	for _, c := range j.replicas() {
		complete[c] = 0
	}
	wrong := make(map[*replica]bool)
	for looks := 0; len(complete) > 0; looks++ {
		if !sleep(ctx, look) {
			return ctx.Err()
		}
		j.look(ctx)
		for c := range complete {
			v := c.judge(facts, round, collections)
			if complete[c]++; !v.whole || !v.passed {
				complete[c] = 0
			}
			if !v.good() && complete[c] < believed && looks < patience {
				continue
			}
			delete(complete, c)
			j.judged[c.kind]++
			if !v.good() || j.starved[c] {
				wrong[c] = true
				j.show(c, round, v)
			}
		}
	}
	j.readers = slices.DeleteFunc(j.readers, func(r *reader) bool { // wrong copies, and those that have been judged twice, are removed
		if r.rounds++; r.rounds < 2 && !slices.ContainsFunc(r.copies, func(c *replica) bool { return wrong[c] }) {
			return false
		}
		r.stop()
		return true
	})
	return nil
}

// show counts the classes of a copy's differences, and explains the first one of each.
func (j *judge) show(c *replica, round int, v verdict) {
	class := v.class()
	for _, name := range class {
		j.count(c.kind, name)
	}
	fmt.Fprintf(j.out, "\n%s round %d, %s: %s (whole %t, has passed the markers %t, %d differences)\n  %s\n",
		j.cluster.since(), round, c.name, strings.Join(class, ", "), v.whole, v.passed, len(v.differences), c.rule)
	shown := make(map[string]bool)
	for _, d := range v.differences {
		if shown[d.class] {
			continue
		}
		shown[d.class] = true
		fmt.Fprintf(j.out, "  %s: %s\n      %s\n    it was sent:\n      %s\n    writes:\n      %s\n",
			d.class, d.key, d.text, strings.Join(c.history(d.key), "\n      "), strings.Join(j.writer.history(d.key), "\n      "))
	}
	fmt.Fprintf(j.out, "  the copy:\n      %s\n", strings.Join(c.history(""), "\n      "))
}

func (j *judge) report() {
	fmt.Fprintf(j.out, "\nwhat happened:\n  %s\n\nseed %d, %.0f s: copies judged, and how many were wrong, by class\n",
		strings.Join(j.cluster.told(), "\n  "), j.seed, time.Since(j.cluster.begun).Seconds())
	for _, kind := range slices.Sorted(maps.Keys(j.judged)) {
		fmt.Fprintf(j.out, "  %-7s %4d  %v\n", kind, j.judged[kind], j.found[kind])
	}
	if lines := j.found["node"]; lines != nil {
		fmt.Fprintf(j.out, "  nodes logged what they must not: %v\n", lines)
	}
}
