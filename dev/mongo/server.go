package devmongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/store"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Server is one development MongoDB.
type Server struct {
	config   Config
	listener net.Listener
	commands map[string]command
	profile  Profile
	addr     string
	started  time.Time
	// process identifies this run of the server, set the replica set over all runs.
	process, set bson.ObjectID

	oplog    *oplog.Log
	store    *store.Store
	sessions *store.Sessions
	cursors  *cursorRegistry
	points   failPoint
	users    *users
	counters counters
	saved    atomic.Uint64 // cluster time of the last snapshot

	refuseTokens atomic.Int32 // the code that refuses streams to be opened after a token; 0: none is
	tokenVersion atomic.Int32 // of streams to be opened; 0: that of the release
	certified    certified

	mu struct {
		sync.Mutex
		conns map[*conn]struct{}
		done  bool
	}
	running sync.WaitGroup // connections
}

// Listen opens the server's port and reads its snapshot. It starts no goroutine: connections wait
// until Run.
func Listen(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("devmongo configuration: %w", err)
	}
	c = c.withDefaults()
	s := &Server{
		config: c, commands: commands(), profile: c.profile(), started: time.Now(),
		process: bson.NewObjectID(), set: bson.NewObjectID(), cursors: newCursorRegistry(), users: &users{},
	}
	for _, u := range c.Users {
		if err := s.SetUser(u); err != nil {
			return nil, err
		}
	}
	s.mu.conns = map[*conn]struct{}{}
	if err := s.restore(); err != nil {
		return nil, err
	}
	if s.profile.Shards > 0 {
		name := store.Name{DB: "config", Coll: "version"}
		version := doc.New().Int32("_id", 1).ObjectID("clusterId", s.set).Document()
		if err := s.store.Insert(name, version, store.Writer{}); err != nil && !wire.HasCode(err, wire.DuplicateKey) {
			return nil, err
		}
	}
	s.sessions = store.NewSessions(s.store)
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return nil, fmt.Errorf("devmongo: %w", err)
	}
	s.listener = s.certified.listen(listener, c.TLS)
	s.addr = listener.Addr().String()
	return s, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URI is the connection string of the server.
func (s *Server) URI() string {
	switch {
	case s.config.Standalone:
		return fmt.Sprintf("mongodb://%s/?directConnection=true", s.Addr())
	case s.profile.Mongos:
		return fmt.Sprintf("mongodb://%s/?directConnection=false", s.Addr())
	}
	return fmt.Sprintf("mongodb://%s/?replicaSet=%s", s.Addr(), setName)
}

// Run serves until ctx ends. Then it closes all connections, writes the snapshot, and returns after
// its last goroutine has ended: nil, or what kept it from serving or from writing the snapshot.
func (s *Server) Run(ctx context.Context) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var keeper sync.WaitGroup
	keeper.Go(func() { s.runHousekeeping(serving) })
	if s.profile.Shards > 0 {
		every := cmp.Or(s.config.NoopEvery, s.profile.NoopEvery)
		for shard := range s.profile.Shards {
			keeper.Go(func() { s.runNoops(serving, shard, every) })
		}
		keeper.Go(func() { s.runNoops(serving, s.profile.Shards, s.profile.ConfigNoopEvery) })
	}
	if s.profile.JournalEvery > 0 {
		keeper.Go(func() { s.runJournal(serving) })
	}
	if s.profile.StrangerEvery > 0 && s.config.Primary == "" {
		keeper.Go(func() { s.runStranger(serving) })
	}
	unblock := context.AfterFunc(serving, func() { _ = s.listener.Close() })
	defer unblock()
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
	s.counters.connections.Add(1)
	s.counters.connectionsOpen.Add(1)
	s.running.Go(func() {
		defer s.leave(c)
		c.run(ctx)
	})
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
	s.counters.connectionsOpen.Add(-1)
}

func (s *Server) close() {
	s.mu.Lock()
	s.mu.done = true
	s.mu.Unlock()
	s.DropConnections()
}

// DropConnections closes every connection, as an election or a lost network does. Cursors stay
// open, except those that a request is waiting on.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		_ = c.net.Close()
	}
}

// TruncateOplog drops all but the newest keep entries of the oplog now. To keep none, it writes a
// no-op that stays.
func (s *Server) TruncateOplog(keep int) { s.oplog.Truncate(keep) }

// TruncateOplogBefore drops the entries before a cluster time, as TruncateOplog does where others
// write as well. The newest one stays.
func (s *Server) TruncateOplogBefore(ts uint64) { s.oplog.TruncateBefore(ts) }

// OplogEntries returns how many entries have left the oplog, and how many are in it.
func (s *Server) OplogEntries() (left, held int64) {
	_, number := s.oplog.First()
	held, _ = s.oplog.Size()
	return int64(number), held
}

// HoldMajority holds the majority commit point where it is, or lets it catch up: while held, change
// streams show nothing new, and writes that want a majority wait.
func (s *Server) HoldMajority(on bool) { s.oplog.Hold(on) }

// SetTokenVersion sets the version, 1 or 2, of the resume tokens of change streams that are opened
// from now on, as when a server of another release takes over. Zero is that of the server's own
// release. Tokens of both are accepted.
func (s *Server) SetTokenVersion(version int) { s.tokenVersion.Store(int32(version)) }

// RefuseTokens refuses with a code, from now on, every change stream that starts after a token,
// whatever the log contains; it accepts only times. Zero refuses none.
func (s *Server) RefuseTokens(code int) { s.refuseTokens.Store(int32(code)) }

// SetClockOffset moves the server's wall clock. Cluster time never goes back.
func (s *Server) SetClockOffset(d time.Duration) { s.oplog.SetOffset(d) }

// ClusterTime is the newest cluster time: seconds in the high half, the increment in the low half.
func (s *Server) ClusterTime() uint64 { return s.oplog.ClusterTime() }

// Generate describes changes that the server makes itself, faster than a client could.
type Generate = store.Generation

// Generate makes changes until it has made all or ctx ends.
func (s *Server) Generate(ctx context.Context, g Generate) error { return s.store.Generate(ctx, g) }

func (s *Server) runHousekeeping(ctx context.Context) {
	snapshots := time.NewTicker(housekeeping)
	defer snapshots.Stop()
	var noops <-chan time.Time
	if every := cmp.Or(s.config.NoopEvery, s.profile.NoopEvery); every > 0 && s.profile.Shards == 0 && s.config.Primary == "" {
		t := time.NewTicker(every)
		defer t.Stop()
		noops = t.C
	}
	applied := s.oplog.Applied()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-snapshots.C:
			s.cursors.reap(now.Add(-cursorTimeout))
			_ = s.save() // the save at the end of Run returns a lasting error
		case <-noops:
			if s.oplog.Applied() == applied {
				s.oplog.Noop("periodic noop")
			}
			applied = s.oplog.Applied()
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
	for last := uint64(1); ; last = s.oplog.AppliedOn(shard) {
		select {
		case <-ctx.Done():
			return
		case <-noop.C:
			s.oplog.NoteOn(shard, doc.New().String("msg", "periodic noop").Document(), last+1)
		}
	}
}

// runJournal commits the written entries.
func (s *Server) runJournal(ctx context.Context) {
	flush := time.NewTicker(s.profile.JournalEvery)
	defer flush.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-flush.C:
			s.oplog.Flush()
		}
	}
}

// runStranger writes what no client has asked for: a few documents that come and go, and entries
// that change nothing.
func (s *Server) runStranger(ctx context.Context) {
	name := store.Name{DB: "stranger", Coll: "noise"}
	for n := int64(0); pause(ctx, rand.N(2*s.profile.StrangerEvery)) == nil; n++ {
		id := doc.New().Int64("_id", n/3).Document()
		switch n % 3 { // a write fails where a client is in its way: the next one may succeed
		case 0:
			_ = s.store.Insert(name, id, store.Writer{})
		case 1:
			s.oplog.Noop("stranger")
		case 2:
			if filter, err := query.ParseFilter(id); err == nil {
				_, _ = s.store.Delete(name, filter, true, store.Writer{})
			}
		}
	}
}

// restore reads the snapshot, or begins a new replica set where there is none.
func (s *Server) restore() error {
	config := oplog.Config{Release: s.profile.Release, MaxBytes: s.config.OplogBytes, Lags: s.profile.JournalEvery > 0, Shards: s.profile.Shards, RenamesMove: s.profile.RenamesMove}
	if path := s.config.Snapshot; path != "" {
		data, set, err := store.Load(path, config)
		if err == nil {
			s.store = data
			s.oplog = data.Log()
			s.set = set
			s.saved.Store(s.oplog.ClusterTime())
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("devmongo snapshot %s: %w", path, err)
		}
	}
	s.oplog = oplog.New(config)
	s.store = store.New(s.oplog)
	return nil
}

// save writes the snapshot, unless nothing has changed since the last.
func (s *Server) save() error {
	path := s.config.Snapshot
	if path == "" || s.saved.Load() == s.oplog.ClusterTime() {
		return nil
	}
	ts, err := s.store.Save(path, s.set)
	if err != nil {
		return fmt.Errorf("devmongo snapshot %s: %w", path, err)
	}
	s.saved.Store(ts)
	return nil
}

const (
	housekeeping  = 30 * time.Second // how often the snapshot is written while something changes
	cursorTimeout = 10 * time.Minute // how long an idle cursor lives
)

// Limits that a server reports to its clients.
const (
	setName        = "rs0"
	sessionMinutes = 30
	maxWriteBatch  = 100_000
)

// client is the connection that a request came on.
type client struct {
	id     int32
	app    string // the client's application name, from its handshake
	login  login
	net    net.Conn
	remote string // its address
}

// env is where change streams live.
func (s *Server) env() oplog.StreamEnv {
	return oplog.StreamEnv{
		TokensGoBack: s.profile.TokensGoBack, ControlTokens: s.profile.ControlTokens,
		RefuseTokens: s.refuseTokens.Load(),
		TokenVersion: s.tokenVersion.Load(), StrictStart: s.profile.StrictStart, SplitsEvents: s.profile.SplitsEvents, SplitsVary: s.profile.SplitsVary,
		Opening: s.counters.opened.Load(), Log: s.oplog, Lookup: s.store.Lookup, Examined: &s.counters.examined, Sent: &s.counters.sent,
	}
}

// counters count since the start, except ConnectionsOpen.
type counters struct {
	opened, examined, sent            atomic.Int64 // of change streams
	getMores, aggregates, killCursors atomic.Int64
	connections, connectionsOpen      atomic.Int64
}

// Stats are counters of a server. They are also the devmongo sub-document of serverStatus.
type Stats struct {
	OplogEntries        int64 // in the log now
	OplogBytes          int64
	ChangeStreamsOpen   int64
	ChangeStreamsOpened int64 // ever
	EntriesExamined     int64 // log entries looked at by all change streams
	DocumentsExamined   int64 // documents looked at by all finds; counting a whole collection looks at none
	EventsSent          int64 // by all change streams
	GetMores            int64
	Aggregates          int64
	KillCursors         int64
	ConnectionsOpen     int64
	CursorsOpen         int64
}

// Stats reads the counters.
func (s *Server) Stats() Stats {
	entries, bytes := s.oplog.Size()
	cursors, streams := s.cursors.count()
	c := &s.counters
	return Stats{
		OplogEntries: entries, OplogBytes: bytes, ChangeStreamsOpen: streams, ChangeStreamsOpened: c.opened.Load(),
		EntriesExamined: c.examined.Load(), DocumentsExamined: s.store.Examined(), EventsSent: c.sent.Load(), GetMores: c.getMores.Load(),
		Aggregates: c.aggregates.Load(), KillCursors: c.killCursors.Load(), ConnectionsOpen: c.connectionsOpen.Load(), CursorsOpen: cursors,
	}
}

// append appends them to a reply.
func (st Stats) append(b *doc.Builder) {
	b.Open("devmongo")
	b.Int64("oplogEntries", st.OplogEntries).Int64("oplogBytes", st.OplogBytes)
	b.Int64("changeStreamsOpen", st.ChangeStreamsOpen).Int64("changeStreamsOpened", st.ChangeStreamsOpened)
	b.Int64("entriesExamined", st.EntriesExamined).Int64("documentsExamined", st.DocumentsExamined).Int64("eventsSent", st.EventsSent)
	b.Int64("getMores", st.GetMores).Int64("aggregates", st.Aggregates).Int64("killCursors", st.KillCursors)
	b.Int64("connectionsOpen", st.ConnectionsOpen).Int64("cursorsOpen", st.CursorsOpen)
	b.End()
}
