package devmongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// Server is one development MongoDB.
type Server struct {
	config   Config
	log      *slog.Logger
	listener net.Listener
	node     *Node
	commands map[string]command
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
	s := &Server{config: c, log: c.logger, commands: adminCommands()}
	maps.Copy(s.commands, crudCommands())
	s.mu.conns = map[*conn]struct{}{}
	s.node = &Node{
		Profile: c.profile(), standalone: c.Standalone, persistent: c.Snapshot != "", helloAwait: c.HelloAwait,
		members: c.Members, primary: c.Primary, started: time.Now(), process: bson.NewObjectID(), set: bson.NewObjectID(), cursors: newCursorRegistry(),
	}
	if err := s.restore(); err != nil {
		return nil, err
	}
	if s.node.shards > 0 {
		name, version := store.Name{DB: "config", Coll: "version"}, doc.New().Int32("_id", 1).ObjectID("clusterId", s.node.set).Document()
		if err := s.node.store.Insert(name, version, store.Writer{}); err != nil && !wire.HasCode(err, wire.DuplicateKey) {
			return nil, err
		}
	}
	s.node.sessions = store.NewSessions(s.node.store)
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return nil, fmt.Errorf("devmongo: %w", err)
	}
	s.listener, s.node.addr = listener, listener.Addr().String()
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
	return fmt.Sprintf("mongodb://%s/?replicaSet=%s", s.Addr(), setName)
}

// Run serves until ctx ends. Then it closes all connections, writes the snapshot, and returns after its last
// goroutine has ended: nil, or what kept it from serving or from writing the snapshot.
func (s *Server) Run(ctx context.Context) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var keeper sync.WaitGroup
	keeper.Go(func() { s.runHousekeeping(serving) })
	if s.node.shards > 0 {
		every := cmp.Or(s.config.NoopEvery, s.node.NoopEvery)
		for shard := range s.node.shards {
			keeper.Go(func() { s.runNoops(serving, shard, every) })
		}
		keeper.Go(func() { s.runNoops(serving, s.node.shards, s.node.ConfigNoopEvery) })
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
	s.node.counters.connections.Add(1)
	s.node.counters.connectionsOpen.Add(1)
	s.running.Go(func() {
		defer s.leave(c)
		c.run(ctx)
	})
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
	s.node.counters.connectionsOpen.Add(-1)
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
func (s *Server) TruncateOplog(keep int) { s.node.oplog.Truncate(keep) }

// TruncateOplogBefore drops the entries before a cluster time, as TruncateOplog does where others write as well. The newest one stays.
func (s *Server) TruncateOplogBefore(ts uint64) { s.node.oplog.TruncateBefore(ts) }

// HoldMajority holds the majority commit point where it is, or lets it catch up: while held, change streams
// show nothing new, and writes that want a majority wait.
func (s *Server) HoldMajority(on bool) { s.node.oplog.Hold(on) }

// SetClockOffset moves the server's wall clock. Cluster time never goes back.
func (s *Server) SetClockOffset(d time.Duration) { s.node.oplog.SetOffset(d) }

// ClusterTime is the newest cluster time: seconds in the high half, the increment in the low half.
func (s *Server) ClusterTime() uint64 { return s.node.oplog.ClusterTime() }

// Stats reads the counters.
func (s *Server) Stats() stats { return s.node.stats() }

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
	return store.Generate(ctx, s.node.store, store.Generation{
		Name: store.Name{DB: g.DB, Coll: g.Coll}, Count: g.Count, Rate: g.Rate, Documents: g.Documents,
		ObjectIDs: g.ObjectIDs, Payload: g.Payload,
	})
}

// runHousekeeping writes snapshots and no-ops and ends idle cursors.
func (s *Server) runHousekeeping(ctx context.Context) {
	snapshots := time.NewTicker(s.config.snapshotEvery)
	defer snapshots.Stop()
	var noops <-chan time.Time
	if every := cmp.Or(s.config.NoopEvery, s.node.NoopEvery); every > 0 && s.node.shards == 0 && s.config.Primary == "" {
		t := time.NewTicker(every)
		defer t.Stop()
		noops = t.C
	}
	applied := s.node.oplog.Applied()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-snapshots.C:
			s.node.cursors.reap(now.Add(-s.config.cursorTimeout))
			if err := s.save(); err != nil {
				s.log.WarnContext(ctx, "devmongo snapshot", "error", err)
			}
		case <-noops:
			if s.node.oplog.Applied() == applied {
				s.node.oplog.Noop("periodic noop")
			}
			applied = s.node.oplog.Applied()
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
	for last := uint64(1); ; last = s.node.oplog.AppliedOn(shard) {
		select {
		case <-ctx.Done():
			return
		case <-noop.C:
			s.node.oplog.NoteOn(shard, doc.New().String("msg", "periodic noop").Document(), last+1)
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
			s.node.oplog.Flush()
		}
	}
}

// runStranger writes what no client has asked for: a few documents that come and go, and entries that change nothing.
func (s *Server) runStranger(ctx context.Context) {
	name := store.Name{DB: "stranger", Coll: "noise"}
	for n := int64(0); pause(ctx, rand.N(2*s.node.StrangerEvery)) == nil; n++ {
		id := doc.New().Int64("_id", n/3).Document()
		var err error
		switch n % 3 {
		case 0:
			err = s.node.store.Insert(name, id, store.Writer{})
		case 1:
			s.node.oplog.Noop("stranger")
		case 2:
			var filter *query.Filter
			if filter, err = query.ParseFilter(id); err == nil {
				_, err = s.node.store.Delete(name, filter, true, store.Writer{})
			}
		}
		if err != nil {
			s.log.WarnContext(ctx, "devmongo stranger", "error", err)
		}
	}
}

// restore reads the snapshot, or begins a new replica set where there is none.
func (s *Server) restore() error {
	config := oplog.Config{Release: s.node.release, MaxBytes: s.config.OplogBytes, Lags: s.node.JournalEvery > 0, Shards: s.node.shards}
	if path := s.config.Snapshot; path != "" {
		data, set, err := store.Load(path, config)
		if err == nil {
			s.node.store, s.node.oplog, s.node.set = data, data.Log(), set
			s.saved.Store(s.node.oplog.ClusterTime())
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("devmongo snapshot %s: %w", path, err)
		}
	}
	s.node.oplog = oplog.New(config)
	s.node.store = store.New(s.node.oplog)
	return nil
}

// save writes the snapshot, unless nothing has changed since the last.
func (s *Server) save() error {
	path := s.config.Snapshot
	if path == "" || s.saved.Load() == s.node.oplog.ClusterTime() {
		return nil
	}
	ts, err := s.node.store.Save(path, s.node.set)
	if err != nil {
		return fmt.Errorf("devmongo snapshot %s: %w", path, err)
	}
	s.saved.Store(ts)
	return nil
}

// Limits that a server tells its clients.
const (
	setName        = "rs0"
	sessionMinutes = 30
	maxWriteBatch  = 100_000
)

// Node is one server, as its commands see it.
type Node struct {
	Profile

	standalone bool
	persistent bool          // keeps its data over restarts
	helloAwait time.Duration // bounds a waiting hello; 0 is what clients ask for
	addr       string
	members    []string // the others of the set
	primary    string   // of the others; empty where it is this one
	started    time.Time
	// process identifies this run of the server, Set the replica set for ever.
	process, set bson.ObjectID

	oplog    *oplog.Log
	store    *store.Store
	sessions *store.Sessions
	cursors  *cursorRegistry
	points   failPoint
	counters counters
}

// client is the connection that a request came on.
type client struct {
	id     int32
	app    string // the client's application name, from its handshake
	remote string // its address
}

// env is where change streams live.
func (n *Node) env() oplog.StreamEnv {
	return oplog.StreamEnv{StrictStart: n.strictStart, SplitsEvents: n.SplitsEvents, SplitsVary: n.SplitsVary, Opening: n.counters.opened.Load(), Log: n.oplog, Lookup: n.store.Lookup, Examined: &n.counters.examined, Sent: &n.counters.sent}
}

// counters count since the start, but for ConnectionsOpen.
type counters struct {
	opened, examined, sent            atomic.Int64 // of change streams
	getMores, aggregates, killCursors atomic.Int64
	connections, connectionsOpen      atomic.Int64
}

// stats are counters of a server. They are also the devmongo sub-document of serverStatus.
type stats struct {
	OplogEntries        int64 // in the log now
	oplogBytes          int64
	ChangeStreamsOpen   int64
	ChangeStreamsOpened int64 // ever
	EntriesExamined     int64 // log entries looked at by all change streams
	EventsSent          int64 // by all change streams
	getMores            int64
	Aggregates          int64
	KillCursors         int64
	ConnectionsOpen     int64
	CursorsOpen         int64
}

// stats reads the counters.
func (n *Node) stats() stats {
	entries, bytes := n.oplog.Size()
	cursors, streams := n.cursors.count()
	c := &n.counters
	return stats{
		OplogEntries: entries, oplogBytes: bytes, ChangeStreamsOpen: streams, ChangeStreamsOpened: c.opened.Load(),
		EntriesExamined: c.examined.Load(), EventsSent: c.sent.Load(), getMores: c.getMores.Load(),
		Aggregates: c.aggregates.Load(), KillCursors: c.killCursors.Load(), ConnectionsOpen: c.connectionsOpen.Load(), CursorsOpen: cursors,
	}
}

// append appends them to a reply.
func (st stats) append(b *doc.Builder) {
	b.Open("devmongo")
	b.Int64("oplogEntries", st.OplogEntries).Int64("oplogBytes", st.oplogBytes)
	b.Int64("changeStreamsOpen", st.ChangeStreamsOpen).Int64("changeStreamsOpened", st.ChangeStreamsOpened)
	b.Int64("entriesExamined", st.EntriesExamined).Int64("eventsSent", st.EventsSent)
	b.Int64("getMores", st.getMores).Int64("aggregates", st.Aggregates).Int64("killCursors", st.KillCursors)
	b.Int64("connectionsOpen", st.ConnectionsOpen).Int64("cursorsOpen", st.CursorsOpen)
	b.End()
}
