package stream

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/oplog"
)

func TestUntriedIsTheFirstThatWasNotAsked(t *testing.T) {
	for _, c := range []struct {
		hosts, tried []string
		want         string
	}{
		{nil, nil, ""},
		{[]string{"a", "b"}, nil, "a"},
		{[]string{"a", "b"}, []string{"a"}, "b"},
		{[]string{"a", "b"}, []string{"b", "x"}, "a"},
		{[]string{"a", "b"}, []string{"b", "a"}, ""},
	} {
		if got, ok := untried(c.hosts, c.tried); got != c.want || ok != (c.want != "") {
			t.Errorf("%v without %v: %q", c.hosts, c.tried, got)
		}
	}
}

// A pair is a primary and a secondary with the same log, made from one snapshot.
type pair struct {
	*scene
	primary, secondary *devmongo.Server
	positions          []change.Position // of the inserts 0 to 9
}

// newPair makes a pair whose log has ten inserts, in a database that has been dropped since. The
// scene watches that database and its own.
func newPair(t *testing.T) *pair {
	t.Helper()
	dir := t.TempDir()
	snapshot, copied := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	var p pair
	var watch Watch
	t.Run("before", func(t *testing.T) { // the server ends, and writes its snapshot, with this test
		first := devmongotest.Start(t, devmongo.Config{Snapshot: snapshot})
		s := newScene(t, first.URI(), SourceConfig{})
		stream := s.open(change.Position{})
		watch = s.source.cfg.Watch
		for i := range 10 {
			s.insert(i)
		}
		for _, e := range s.read(stream, 10) {
			p.positions = append(p.positions, e.Position().Clone())
		}
	})
	duplicate(t, snapshot, copied)
	a, b := devmongotest.FreeAddress(), devmongotest.FreeAddress()
	p.primary = devmongotest.Start(t, devmongo.Config{Addr: a, Members: []string{b}, Snapshot: snapshot})
	p.secondary = devmongotest.Start(t, devmongo.Config{Addr: b, Members: []string{a}, Primary: a, Snapshot: copied})
	p.scene = newScene(t, p.primary.URI(), SourceConfig{Watch: watch})
	return &p
}

func duplicate(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// shorten drops a position, and all before it, from the primary's log.
func (p *pair) shorten(at change.Position) {
	p.primary.TruncateOplogBefore((uint64(at.Time.T)<<32 | uint64(at.Time.I)) + 1)
}

// What the primary's log has lost is read from a member that still has it, and the stream comes
// back to the primary.
func TestPositionThatAnotherMemberHasIsNotLost(t *testing.T) {
	p := newPair(t)
	p.insert("after") // which the secondary never has
	p.shorten(p.positions[2])
	open := p.open(p.positions[1])
	events := p.read(open, 8)
	for i := range 8 {
		if events[i].Position().Compare(p.positions[2+i]) != 0 {
			t.Errorf("event %d is %v", i, events[i].Position())
		}
	}
	st, _ := open.(*stream)
	if st.at.host != p.secondary.Addr().String() {
		t.Fatalf("the stream is at %q", st.at.host)
	}
	if n := p.secondary.Stats().ChangeStreamsOpened; n != 1 {
		t.Errorf("%d streams were opened on the secondary", n)
	}
	// It stops to serve: the primary has what follows.
	p.failOn(p.secondary, bson.D{{Key: "failCommands", Value: bson.A{"getMore", "aggregate"}}, {Key: "errorCode", Value: 11600}})
	for after := false; !after; {
		for _, e := range p.read(open, 1) {
			after = after || string(e.ID().Text()) == "after"
		}
	}
	if st.at.host != "" {
		t.Errorf("the stream is still at %q", st.at.host)
	}
}

// A member that does not have the position either, or does not answer, is asked once; then the
// position is lost.
func TestPositionThatNoMemberHasIsLost(t *testing.T) {
	for name, spoil := range map[string]func(p *pair){
		"its log is short too": func(p *pair) { p.secondary.TruncateOplog(1) },
		"it refuses to open it": func(p *pair) {
			p.failOn(p.secondary, bson.D{{Key: "failCommands", Value: bson.A{"aggregate"}}, {Key: "errorCode", Value: 286}})
		},
		"it does not answer": func(p *pair) {
			p.failOn(p.secondary, bson.D{{Key: "failCommands", Value: bson.A{"find"}}, {Key: "closeConnection", Value: true}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			p.shorten(p.positions[2])
			spoil(p)
			before := p.secondary.Stats().Aggregates
			if _, err := p.source.Open(t.Context(), p.positions[1]); !errors.Is(err, oplog.ErrPositionLost) {
				t.Errorf("%v", err)
			}
			if n := p.secondary.Stats().Aggregates - before; n > 1 {
				t.Errorf("opened %d times on the secondary", n)
			}
		})
	}
}

// failOn makes commands fail on one member.
func (p *pair) failOn(server *devmongo.Server, data bson.D) {
	p.Helper()
	client, err := p.client.Member(server.Addr().String())
	if err != nil {
		p.Fatal(err)
	}
	configure := bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "alwaysOn"}, {Key: "data", Value: data}}
	if err := client.Driver().Database("admin").RunCommand(p.Context(), configure).Err(); err != nil {
		p.Fatal(err)
	}
}
