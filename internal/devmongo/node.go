package devmongo

import (
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/store"
)

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
