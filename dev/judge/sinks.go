package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A sink is a sink of the nodes, with two consumers: one takes every record, the other only the
// first with an id and key. When everything rests the last record of each document must be its
// newest state, for both.
type sink struct {
	cluster    *cluster
	kind, name string
	target     string // URL, or pattern of files
	of         []rule // one for each collection
	slow       time.Duration
	fails      int // of a hundred requests
	calm       atomic.Bool

	mu struct {
		sync.Mutex
		requests    int
		every, once *replica
		seen        map[string]bool
		read        map[string]int64 // of each file
	}
}

// newSinks returns the sinks of a round. Their names are new, so that each begins with a snapshot.
func newSinks(j *judge, round int) (sinks []*sink) {
	r := dice(j.seed, "sinks", round)
	add := func(name, kind string, of rule, slow time.Duration, fails int, collections ...string) {
		if !strings.Contains(j.only, kind) {
			return
		}
		s := &sink{cluster: j.cluster, kind: kind, name: fmt.Sprintf("%s-%d", name, round), slow: slow, fails: fails}
		for _, coll := range collections {
			of.coll = coll
			s.of = append(s.of, of)
		}
		all := of
		if all.coll = ""; len(collections) == 1 {
			all.coll = collections[0]
		}
		inner := all.matches
		all.matches = func(d object) bool { // of its collections only: home names them
			home, _ := d["home"].(string)
			return slices.Contains(collections, strings.TrimPrefix(home, "marker.")) && inner(d)
		}
		s.mu.every, s.mu.once = newReplica(j.cluster, kind, s.name+", every record", all), newReplica(j.cluster, kind, s.name+", each id once", all)
		s.mu.seen, s.mu.read = make(map[string]bool), make(map[string]int64)
		s.target = j.target.url + s.name
		if kind == "file" {
			s.target = filepath.Join(j.cluster.dir, s.name+".n%d.jsonl")
		}
		sinks = append(sinks, s)
	}
	filtered := filters()[2]
	if j.full == "default" {
		filtered = filters()[0]
	}
	changing := filters()[0]
	changing.ops = []string{"insert", "delete"}
	add("plain", "http", filters()[0], 0, r.IntN(6), stable()...)
	add("slow", "http", filtered, 500*time.Millisecond+upTo(r, 2500*time.Millisecond), r.IntN(3), "a", "b")
	add("operations", "http", changing, 20*time.Millisecond, 0, pick(r, stable()...))
	add("file", "file", filters()[0], 0, 0, pick(r, stable()...))
	return sinks
}

func (s *sink) copies() []*replica {
	if s.cluster.wide { // intended repetitions have the ids of the first time
		return []*replica{s.mu.every}
	}
	return []*replica{s.mu.every, s.mu.once}
}

// config returns the sink in the configuration of a node.
func (s *sink) config(_ *cluster, node int) map[string]any {
	type fields = map[string]any
	subscriptions := []fields{}
	for _, of := range s.of {
		subscriptions = append(subscriptions, fields{"namespace": database + "." + of.coll, "filter": of.filter, "operations": append([]string{}, of.ops...)})
	}
	c := fields{"name": s.name, "type": s.kind, "start": "snapshot", "subscriptions": subscriptions}
	if s.kind == "file" {
		c["file"] = fields{"path": fmt.Sprintf(s.target, node)}
	} else {
		c["http"] = fields{"url": s.target, "secret": "of the judge, and of nobody else", "allow": []string{"127.0.0.1/32"}, "timeout": "5s", "batch": 10}
	}
	return c
}

// A subscribers is what nodes say of those that have sessions with several nodes, whose marks say
// nothing of the whole: in how many partitions each is served, and by sessions whose snapshots are
// done. The documents of a partition without an owner are still to come.
type subscribers struct{ served, done map[string]int }

// askNodes asks all nodes.
func (c *cluster) askNodes(ctx context.Context) subscribers {
	all := subscribers{make(map[string]int), make(map[string]int)}
	for _, address := range c.http {
		var list struct {
			Subscribers []struct {
				Subscriber string
				Session    struct {
					Partitions int
					Snapshots  []struct{ Done bool }
				}
			}
		}
		if _, err := get(ctx, "http://"+address+"/v1/subscribers", &list); err != nil {
			continue
		}
		for _, sub := range list.Subscribers {
			all.served[sub.Subscriber] += sub.Session.Partitions
			if !slices.ContainsFunc(sub.Session.Snapshots, func(s struct{ Done bool }) bool { return !s.Done }) {
				all.done[sub.Subscriber] += sub.Session.Partitions
			}
		}
	}
	return all
}

// look notes whether the sink's snapshots are done in all partitions.
func (s *sink) look(all subscribers) {
	for _, copied := range s.copies() {
		copied.mu.Lock()
		if clear(copied.missing); all.done["sink/"+s.name] < partitions {
			copied.missing[""] = true
		}
		for _, coll := range []string{"vol", "old", "draft"} { // which it is not of
			copied.markers[database+"."+coll] = 1 << 30
		}
		for _, coll := range stable() {
			if !slices.ContainsFunc(s.of, func(of rule) bool { return of.coll == coll }) {
				copied.markers[database+"."+coll] = 1 << 30
			}
		}
		copied.mu.Unlock()
	}
}

// take applies records, one a line. The caller holds the mutex.
func (s *sink) take(lines []byte) {
	for line := range bytes.SplitSeq(bytes.TrimSpace(lines), []byte("\n")) {
		var e event
		if err := parse(line, &e); err != nil || e.Op == "" {
			s.cluster.tell("%s: %v %.200s", s.name, err, line) // a loss
			continue
		}
		s.mu.every.replays() // a repetition goes back
		s.mu.every.change(&e)
		if id := e.ID + e.NS.Coll + text(e.Key["_id"]); !s.mu.seen[id] {
			s.mu.seen[id] = true
			s.mu.once.change(&e)
		}
	}
}

// A receiver is the endpoint of the HTTP sinks. It answers late, fails, or breaks off after it has
// accepted the request.
type receiver struct {
	url string

	mu    sync.Mutex
	sinks []*sink
}

func newReceiver() (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		return nil, fmt.Errorf("listen for sinks: %w", err)
	}
	r := &receiver{url: "http://" + listener.Addr().String() + "/"}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute, ErrorLog: nil}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // the judge cannot continue
		}
	}()
	return r, nil
}

func (r *receiver) serve(sinks []*sink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sinks = sinks
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	r.mu.Lock()
	i := slices.IndexFunc(r.sinks, func(s *sink) bool { return "/"+s.name == request.URL.Path })
	if err != nil || i < 0 { // of a round that is over
		r.mu.Unlock()
		return
	}
	s := r.sinks[i]
	r.mu.Unlock()
	s.mu.Lock()
	s.mu.requests++
	random := dice(s.cluster.seed, s.name, s.mu.requests)
	fails := random.IntN(100) < s.fails
	if !fails || random.IntN(2) == 0 {
		s.take(body)
	}
	s.mu.Unlock()
	if !s.calm.Load() {
		sleep(request.Context(), upTo(random, s.slow))
	}
	if fails {
		panic(http.ErrAbortHandler)
	}
}

// follow reads the files of all nodes as one log: up to lengths of one moment, so that the lines of
// a later owner are not read before those of the former one.
func (s *sink) follow(ctx context.Context) {
	for sleep(ctx, 5*time.Millisecond) {
		now := s.sizes()
		for again := s.sizes(); !slices.Equal(now, again); again = s.sizes() {
			now = again
		}
		for node, size := range now {
			if err := s.readFile(fmt.Sprintf(s.target, node), size); err != nil {
				s.cluster.tell("%s: %v", s.name, err)
			}
		}
	}
}

func (s *sink) sizes() []int64 {
	sizes := make([]int64, s.cluster.nodes)
	for node := range sizes {
		if info, err := os.Stat(fmt.Sprintf(s.target, node)); err == nil {
			sizes[node] = info.Size()
		}
	}
	return sizes
}

func (s *sink) readFile(path string, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.mu.read[path]
	if size <= from {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read
	data := make([]byte, size-from)
	if _, err := f.ReadAt(data, from); err != nil {
		return err
	}
	end := bytes.LastIndexByte(data, '\n') + 1
	s.mu.read[path] = from + int64(end)
	if end > 0 {
		s.take(data[:end])
	}
	return nil
}
