package client

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/gateway/streampb"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata anew")

// A stage is a fleet whose nodes a test plays, and what happens there.
type stage struct {
	*testing.T

	fleet *fleet

	mu         sync.Mutex
	lines      []string
	tried      map[string]chan bool // by address: whether the node that is tried answers
	sessions   map[string]*player   // by address
	partitions uint32
}

// A player is a session with a node of the stage.
type player struct {
	stage *stage
	node  string
	end   chan struct{}
	once  sync.Once
}

func (s *player) attach(partitions []uint32) { s.stage.write("  %s attach %v", s.node, partitions) }
func (s *player) detach(partitions []uint32) { s.stage.write("  %s detach %v", s.node, partitions) }

func (s *player) leave() {
	s.stage.write("  %s leave", s.node)
	s.close()
}

func (s *player) close() { s.once.Do(func() { close(s.end) }) }

func (s *stage) write(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// link plays what a client does: it tries addresses until there is none. The node at a:1 is called
// a.
func (s *stage) link(ctx context.Context, at addresses) {
	for {
		address, ok := at.next(ctx)
		if !ok {
			return
		}
		others := ""
		if at.others() {
			others = ", there are others"
		}
		s.write("  try %s%s", address, others)
		answer := make(chan bool)
		s.mu.Lock()
		s.tried[address] = answer
		s.mu.Unlock()
		select {
		case there := <-answer:
			if there {
				node, _, _ := strings.Cut(address, ":")
				s.serve(ctx, address, &player{stage: s, node: node, end: make(chan struct{})})
			}
		case <-ctx.Done():
		}
		at.over()
	}
}

func (s *stage) serve(ctx context.Context, address string, with *player) {
	s.mu.Lock()
	s.sessions[address] = with
	partitions := s.partitions
	s.mu.Unlock()
	s.fleet.up(with, with.node, partitions)
	select {
	case <-with.end:
	case <-ctx.Done():
	}
	s.fleet.down(with)
}

// step does something and lets everything that follows happen.
func (s *stage) step(what string, do func()) {
	s.write("%s", what)
	begin := len(s.lines)
	do()
	synctest.Wait()
	slices.Sort(s.lines[begin:]) // what follows comes in no particular order
}

// answer lets the node that is tried at an address answer, or not.
func (s *stage) answer(address string, there bool) {
	s.step(fmt.Sprintf("%s answers: %t", address, there), func() {
		s.mu.Lock()
		answer := s.tried[address]
		delete(s.tried, address)
		s.mu.Unlock()
		if answer == nil {
			s.Fatalf("%s is not tried: %q", address, slices.Collect(maps.Keys(s.tried)))
		}
		answer <- there
	})
}

// die ends the session with a node.
func (s *stage) die(address string) {
	s.step(address+" dies", func() { s.sessions[address].close() })
}

func (s *stage) arrive(address string, partition uint32) {
	s.step(fmt.Sprintf("%s has caught up in %d", address, partition), func() { s.fleet.arrived(s.sessions[address], []uint32{partition}) })
}

// learn tells the topology: the owner of each partition, which is a letter or none.
func (s *stage) learn(from string, version uint64, owners string) {
	s.step(fmt.Sprintf("%s tells topology %d: %s", from, version, owners), func() {
		t := &streampb.Topology{Version: version}
		for _, name := range "abcx" {
			address := string(name) + ":1"
			if name == 'x' {
				address = "forbidden:1"
			}
			t.Nodes = append(t.Nodes, &streampb.Topology_Node{Name: string(name), Address: address})
		}
		for _, owner := range owners {
			t.Owners = append(t.Owners, int32(strings.IndexRune("abcx", owner)))
		}
		s.fleet.learn(t)
	})
}

// play runs a fleet that begins at a:1 and c:1, and compares what happens with the transcript.
func play(t *testing.T, name string, script func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, tried: map[string]chan bool{}, sessions: map[string]*player{}, partitions: 4}
		s.fleet = newFleet(fleetConfig{
			addresses: []string{"a:1", "c:1"}, dialable: func(address string) bool { return address != "forbidden:1" },
			link: s.link,
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.fleet.run(ctx)
		}()
		synctest.Wait()
		script(s)
		stop()
		<-ended
		compare(t, name, strings.Join(s.lines, "\n")+"\n")
	})
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "fleet", name+".txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the transcript has changed (-want +got; -rewrite writes it anew):\n%s", diff)
	}
}

// The owner is attached first, and who served before is left when it has sent something.
func TestPartitionsMoveWithTheirOwners(t *testing.T) {
	play(t, "move", func(s *stage) {
		s.answer("a:1", true)
		s.learn("a", 5, "aabb")
		s.answer("b:1", true)
		s.arrive("b:1", 2)
		s.arrive("b:1", 3)
		s.learn("b", 4, "bbbb") // older
		s.learn("b", 6, "bbab")
		s.arrive("b:1", 0)
		s.arrive("a:1", 2)
		s.learn("a", 7, "bbbb")
		s.arrive("b:1", 1)
		s.arrive("b:1", 2) // nothing is left to a
	})
}

func TestAnyNodeTakesTheOwnersPlace(t *testing.T) {
	play(t, "fallback", func(s *stage) {
		s.answer("a:1", true)
		s.learn("a", 1, "a-bc") // one has no owner
		s.answer("b:1", false)
		s.answer("c:1", true)
		s.arrive("c:1", 3)
		s.die("a:1")
		s.answer("a:1", true)
		s.arrive("a:1", 0)
		s.step("a:1 stops", func() { s.fleet.retreat(s.sessions["a:1"]) })
		s.arrive("c:1", 0)
		s.die("a:1")
		s.learn("c", 2, "xxcc") // of x the address cannot be used
	})
}

func TestSearchBeginsAnewWithoutAnySession(t *testing.T) {
	play(t, "search", func(s *stage) {
		s.answer("a:1", false)
		s.answer("c:1", true)
		s.learn("c", 9, "bbcc")
		s.die("c:1") // b is being tried
		s.answer("b:1", false)
		s.answer("b:1", false) // it is one of those that may be found first
		s.answer("a:1", true)
		s.learn("a", 3, "aaaa") // a cluster that counts anew
	})
}

// Of sessions that know of different numbers of partitions, only the last one counts.
func TestSessionsOfAnotherPartitioningAreLeft(t *testing.T) {
	play(t, "repartitioned", func(s *stage) {
		s.answer("a:1", true)
		s.learn("a", 1, "abab")
		s.partitions = 2
		s.answer("b:1", true)
		s.learn("b", 2, "bb")
	})
}
