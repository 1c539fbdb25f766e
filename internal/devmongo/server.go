package devmongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/internal/devmongo/admin"
	"github.com/mongostream/streamer/internal/devmongo/crud"
	"github.com/mongostream/streamer/internal/devmongo/cursor"
	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/generate"
	"github.com/mongostream/streamer/internal/devmongo/node"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/session"
	"github.com/mongostream/streamer/internal/devmongo/store"
)

// Server is one development MongoDB.
type Server struct {
	config   Config
	log      *slog.Logger
	listener net.Listener
	node     *node.Node
	commands map[string]node.Command
	saved    atomic.Uint64 // cluster time of the last snapshot

	mu struct {
		sync.Mutex
		conns map[*conn]struct{}
		done  bool
	}
	running sync.WaitGroup // connections
}

// Listen opens the server's port and reads its snapshot. It starts no goroutine: connections wait until Run.
func Listen(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("devmongo configuration: %w", err)
	}
	c = c.withDefaults()
	s := &Server{config: c, log: c.Logger, commands: admin.Commands()}
	maps.Copy(s.commands, crud.Commands())
	s.mu.conns = map[*conn]struct{}{}
	s.node = &node.Node{
		Profile: c.profile(), Standalone: c.Standalone, Persistent: c.Snapshot != "", HelloAwait: c.HelloAwait,
		Members: c.Members, Primary: c.Primary, Started: time.Now(), Process: bson.NewObjectID(), Set: bson.NewObjectID(), Cursors: cursor.NewRegistry(),
	}
	if err := s.restore(); err != nil {
		return nil, err
	}
	if s.node.Shards > 0 {
		name, version := store.Name{DB: "config", Coll: "version"}, doc.New().Int32("_id", 1).ObjectID("clusterId", s.node.Set).Document()
		if err := s.node.Store.Insert(name, version, store.Writer{}); err != nil && !fault.Is(err, fault.DuplicateKey) {
			return nil, err
		}
	}
	s.node.Sessions = session.NewRegistry(s.node.Store)
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return nil, fmt.Errorf("devmongo: %w", err)
	}
	s.listener, s.node.Addr = listener, listener.Addr().String()
	return s, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URI is the connection string of the server.
func (s *Server) URI() string {
	switch {
	case s.config.Standalone:
		return fmt.Sprintf("mongodb://%s/?directConnection=true", s.Addr())
	case s.node.Mongos:
		return fmt.Sprintf("mongodb://%s/?directConnection=false", s.Addr())
	}
	return fmt.Sprintf("mongodb://%s/?replicaSet=%s", s.Addr(), node.SetName)
}

// Run serves until ctx ends. Then it closes all connections, writes the snapshot, and returns after its last
// goroutine has ended: nil, or what kept it from serving or from writing the snapshot.
func (s *Server) Run(ctx context.Context) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var keeper sync.WaitGroup
	keeper.Go(func() { s.runHousekeeping(serving) })
	if s.node.Shards > 0 {
		every := cmp.Or(s.config.NoopEvery, s.node.NoopEvery)
		for shard := range s.node.Shards {
			keeper.Go(func() { s.runNoops(serving, shard, every) })
		}
		keeper.Go(func() { s.runNoops(serving, s.node.Shards, s.node.ConfigNoopEvery) })
	}
	if s.node.JournalEvery > 0 {
		keeper.Go(func() { s.runJournal(serving) })
	}
	if s.node.StrangerEvery > 0 && s.config.Primary == "" {
		keeper.Go(func() { s.runStranger(serving) })
	}
	unblock := context.AfterFunc(serving, func() { _ = s.listener.Close() })
	defer unblock()
	s.log.InfoContext(ctx, "devmongo listening", "addr", s.Addr().String(), "release", s.config.Release)
	err := s.accept(serving)
	stop()
	s.close()
	s.running.Wait()
	keeper.Wait()
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, s.save())
}

func (s *Server) accept(ctx context.Context) error {
	for id := int32(1); ; id++ {
		c, err := s.listener.Accept()
		if err != nil {
			return fmt.Errorf("devmongo: %w", err)
		}
		s.admit(ctx, newConn(s, c, id))
	}
}

func (s *Server) admit(ctx context.Context, c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.done {
		_ = c.net.Close()
		return
	}
	s.mu.conns[c] = struct{}{}
	s.node.Counters.Connections.Add(1)
	s.node.Counters.ConnectionsOpen.Add(1)
	s.running.Go(func() {
		defer s.leave(c)
		c.run(ctx)
	})
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
	s.node.Counters.ConnectionsOpen.Add(-1)
}

func (s *Server) close() {
	s.mu.Lock()
	s.mu.done = true
	s.mu.Unlock()
	s.DropConnections()
}

// DropConnections closes every connection, as an election or a lost network does. Cursors stay open, except
// those that a request is waiting on.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		_ = c.net.Close()
	}
}

// TruncateOplog drops all but the newest keep entries of the oplog now. To keep none, it writes a no-op that
// stays.
func (s *Server) TruncateOplog(keep int) { s.node.Oplog.Truncate(keep) }

// TruncateOplogBefore drops the entries before a cluster time, as TruncateOplog does where others write as well. The newest one stays.
func (s *Server) TruncateOplogBefore(ts uint64) { s.node.Oplog.TruncateBefore(ts) }

// HoldMajority holds the majority commit point where it is, or lets it catch up: while held, change streams
// show nothing new, and writes that want a majority wait.
func (s *Server) HoldMajority(on bool) { s.node.Oplog.Hold(on) }

// SetClockOffset moves the server's wall clock. Cluster time never goes back.
func (s *Server) SetClockOffset(d time.Duration) { s.node.Oplog.SetOffset(d) }

// ClusterTime is the newest cluster time: seconds in the high half, the increment in the low half.
func (s *Server) ClusterTime() uint64 { return s.node.Oplog.ClusterTime() }

// Stats are counters of a server. They are also the devmongo sub-document of serverStatus.
type Stats = node.Stats

// Stats reads the counters.
func (s *Server) Stats() Stats { return s.node.Stats() }

// Generate is a stream of changes that the server makes itself, faster than a client could.
type Generate struct {
	DB, Coll string
	// Count is the number of events: first an insert of each document, then updates in rotation.
	Count int
	// Rate is the number of events a second, in even slices; 0 is as fast as possible.
	Rate int
	// Documents is the number of distinct _ids. Defaults to 1.
	Documents int
	// ObjectIDs makes them ObjectIDs instead of int64s from 1 on.
	ObjectIDs bool
	// Payload is the length of the string field "payload".
	Payload int
}

// Generate makes the changes and returns when they are made or ctx ends. Each document, and each update of
// it, has seq, which counts the document's changes from 1, and at, the server's wall clock in nanoseconds.
// Documents that exist already are an error.
func (s *Server) Generate(ctx context.Context, g Generate) error {
	return generate.Generate(ctx, s.node.Store, generate.Generation{
		Name: store.Name{DB: g.DB, Coll: g.Coll}, Count: g.Count, Rate: g.Rate, Documents: g.Documents,
		ObjectIDs: g.ObjectIDs, Payload: g.Payload,
	})
}

// runHousekeeping writes snapshots and no-ops and ends idle cursors.
func (s *Server) runHousekeeping(ctx context.Context) {
	snapshots := time.NewTicker(s.config.SnapshotEvery)
	defer snapshots.Stop()
	var noops <-chan time.Time
	if every := cmp.Or(s.config.NoopEvery, s.node.NoopEvery); every > 0 && s.node.Shards == 0 && s.config.Primary == "" {
		t := time.NewTicker(every)
		defer t.Stop()
		noops = t.C
	}
	applied := s.node.Oplog.Applied()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-snapshots.C:
			s.node.Cursors.Reap(now.Add(-s.config.CursorTimeout))
			if err := s.save(); err != nil {
				s.log.WarnContext(ctx, "devmongo snapshot", "error", err)
			}
		case <-noops:
			if s.node.Oplog.Applied() == applied {
				s.node.Oplog.Noop("periodic noop")
			}
			applied = s.node.Oplog.Applied()
		}
	}
}

// runNoops has an idle shard write that it is there.
func (s *Server) runNoops(ctx context.Context, shard int, every time.Duration) {
	if every <= 0 {
		return
	}
	noop := time.NewTicker(every)
	defer noop.Stop()
	for last := uint64(1); ; last = s.node.Oplog.AppliedOn(shard) {
		select {
		case <-ctx.Done():
			return
		case <-noop.C:
			s.node.Oplog.NoteOn(shard, doc.New().String("msg", "periodic noop").Document(), last+1)
		}
	}
}

// runJournal commits what has been written.
func (s *Server) runJournal(ctx context.Context) {
	flush := time.NewTicker(s.node.JournalEvery)
	defer flush.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-flush.C:
			s.node.Oplog.Flush()
		}
	}
}

// runStranger writes what no client has asked for: a few documents that come and go, and entries that change nothing.
func (s *Server) runStranger(ctx context.Context) {
	name := store.Name{DB: "stranger", Coll: "noise"}
	for n := int64(0); node.Pause(ctx, rand.N(2*s.node.StrangerEvery)) == nil; n++ {
		id := doc.New().Int64("_id", n/3).Document()
		var err error
		switch n % 3 {
		case 0:
			err = s.node.Store.Insert(name, id, store.Writer{})
		case 1:
			s.node.Oplog.Noop("stranger")
		case 2:
			var filter *query.Filter
			if filter, err = query.Parse(id); err == nil {
				_, err = s.node.Store.Delete(name, filter, true, store.Writer{})
			}
		}
		if err != nil {
			s.log.WarnContext(ctx, "devmongo stranger", "error", err)
		}
	}
}
