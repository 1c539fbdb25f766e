package node

import (
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/internal/devmongo/cursor"
	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/failpoint"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/profile"
	"github.com/mongostream/streamer/internal/devmongo/session"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/stream"
)

// Limits that a server tells its clients.
const (
	SetName        = "rs0"
	SessionMinutes = 30
	MaxWriteBatch  = 100_000
)

// Node is one server, as its commands see it.
type Node struct {
	profile.Profile

	Standalone bool
	Persistent bool          // keeps its data over restarts
	HelloAwait time.Duration // bounds a waiting hello; 0 is what clients ask for
	Addr       string
	Members    []string // the others of the set
	Primary    string   // of the others; empty where it is this one
	Started    time.Time
	// Process identifies this run of the server, Set the replica set for ever.
	Process, Set bson.ObjectID

	Oplog    *oplog.Log
	Store    *store.Store
	Sessions *session.Registry
	Cursors  *cursor.Registry
	Points   failpoint.Set
	Counters Counters
}

// Client is the connection that a request came on.
type Client struct {
	ID     int32
	App    string // the client's application name, from its handshake
	Remote string // its address
}

// Env is where change streams live.
func (n *Node) Env() stream.Env {
	return stream.Env{Profile: n.Profile, Opening: n.Counters.Opened.Load(), Log: n.Oplog, Lookup: n.Store.Lookup, Examined: &n.Counters.Examined, Sent: &n.Counters.Sent}
}

// Counters count since the start, but for ConnectionsOpen.
type Counters struct {
	Opened, Examined, Sent            atomic.Int64 // of change streams
	GetMores, Aggregates, KillCursors atomic.Int64
	Connections, ConnectionsOpen      atomic.Int64
}

// Stats are counters of a server. They are also the devmongo sub-document of serverStatus.
type Stats struct {
	OplogEntries        int64 // in the log now
	OplogBytes          int64
	ChangeStreamsOpen   int64
	ChangeStreamsOpened int64 // ever
	EntriesExamined     int64 // log entries looked at by all change streams
	EventsSent          int64 // by all change streams
	GetMores            int64
	Aggregates          int64
	KillCursors         int64
	ConnectionsOpen     int64
	CursorsOpen         int64
}

// Stats reads the counters.
func (n *Node) Stats() Stats {
	entries, bytes := n.Oplog.Size()
	cursors, streams := n.Cursors.Count()
	c := &n.Counters
	return Stats{
		OplogEntries: entries, OplogBytes: bytes, ChangeStreamsOpen: streams, ChangeStreamsOpened: c.Opened.Load(),
		EntriesExamined: c.Examined.Load(), EventsSent: c.Sent.Load(), GetMores: c.GetMores.Load(),
		Aggregates: c.Aggregates.Load(), KillCursors: c.KillCursors.Load(), ConnectionsOpen: c.ConnectionsOpen.Load(), CursorsOpen: cursors,
	}
}

// Append appends them to a reply.
func (st Stats) Append(b *doc.Builder) {
	b.Open("devmongo")
	b.Int64("oplogEntries", st.OplogEntries).Int64("oplogBytes", st.OplogBytes)
	b.Int64("changeStreamsOpen", st.ChangeStreamsOpen).Int64("changeStreamsOpened", st.ChangeStreamsOpened)
	b.Int64("entriesExamined", st.EntriesExamined).Int64("eventsSent", st.EventsSent)
	b.Int64("getMores", st.GetMores).Int64("aggregates", st.Aggregates).Int64("killCursors", st.KillCursors)
	b.Int64("connectionsOpen", st.ConnectionsOpen).Int64("cursorsOpen", st.CursorsOpen)
	b.End()
}
