package config

import (
	"log/slog"
	"time"
)

// Config is the table of all keys. Durations are positive unless a range says more, sizes are in
// bytes.
type Config struct {
	Cluster   Cluster   `key:"cluster"`
	Node      Node      `key:"node"`
	StartFrom StartFrom `key:"start_from" default:"now"`
	// OnHistoryLost says what to do where the oplog no longer reaches back to a partition's
	// position.
	OnHistoryLost string      `key:"on_history_lost" default:"resync" one:"resync halt"`
	MongoDB       MongoDB     `key:"mongodb"`
	Etcd          Etcd        `key:"etcd"`
	Retention     Retention   `key:"retention"`
	Rescan        Rescan      `key:"rescan"`
	HTTP          HTTP        `key:"http"`
	GRPC          GRPC        `key:"grpc"`
	Gateway       Gateway     `key:"gateway"`
	Handoff       Handoff     `key:"handoff"`
	Sinks         []Sink      `key:"sinks"`
	Access        Access      `key:"access"`
	Notices       Notices     `key:"notices"`
	Supervisor    Supervisor  `key:"supervisor"`
	Log           Log         `key:"log"`
	Debug         Debug       `key:"debug"`
	Tracing       Tracing     `key:"tracing"`
	Reliability   Reliability `key:"reliability"`
}

// Cluster has the settings that all nodes of a cluster share.
type Cluster struct {
	// ID names the cluster: nodes with the same id share checkpoints.
	ID string `key:"id" default:"streamer" check:"name"`
	// Partitions is N; it is fixed once there are checkpoints.
	Partitions int `key:"partitions" default:"64" range:"1..16384"`
	// LeaseTTL is how long a claim lasts without renewal.
	LeaseTTL time.Duration `key:"lease_ttl" default:"10s" range:"2s..1h"`
	// ExpectedNodes is how many nodes share the partitions; 1 is a single-node cluster, which
	// refuses a second node.
	ExpectedNodes int `key:"expected_nodes" default:"1" range:"1..1000"`
	// HeartbeatInterval is how often a node reports its health to the leader.
	HeartbeatInterval time.Duration `key:"heartbeat_interval" default:"2s" range:"100ms..1m"`
	// RoundFloor is the shortest pause between two rounds of the leader, RebalanceDebounce the
	// longest one while changes keep coming.
	RoundFloor        time.Duration `key:"round_floor" default:"50ms" range:"1ms..1m"`
	RebalanceDebounce time.Duration `key:"rebalance_debounce" default:"1s" range:"1ms..1m"`
	// SettleTime is how long a cluster waits for joining nodes before it assigns partitions to
	// them.
	SettleTime time.Duration `key:"settle_time" default:"10s" range:"0s..10m"`
	// Rebalance is the interval at which a cluster checks whether partitions should move because
	// some nodes have more load than others.
	Rebalance time.Duration `key:"rebalance" default:"1m" range:"1s..8760h"`
	// RebalanceFloor is how many events a second a node must have more or less than its share for
	// partitions to move because of it.
	RebalanceFloor int `key:"rebalance_floor" default:"10" range:"1..1000000000"`
	// RebalanceCooldown is how long a moved partition stays before it may move again to balance
	// events.
	RebalanceCooldown time.Duration `key:"rebalance_cooldown" default:"1h" range:"1s..8760h"`

	Resync            Resync            `key:"resync"`
	AssignmentCircuit AssignmentCircuit `key:"assignment_circuit"`
}

// Resync has the settings with which the leader sends a restarted node its partitions again.
type Resync struct {
	// Debounce is how long after a restart it begins, RateLimit how many partitions are checked a
	// second, of all nodes.
	Debounce  time.Duration `key:"debounce" default:"5s" range:"1ms..10m"`
	RateLimit int           `key:"rate_limit" default:"10" range:"1..1000000"`
}

// AssignmentCircuit is when the leader stops to assign partitions to a node that keeps failing.
type AssignmentCircuit struct {
	FailureThreshold int           `key:"failure_threshold" default:"3" range:"1..1000000"`
	HalfOpenTimeout  time.Duration `key:"half_open_timeout" default:"30s" range:"1ms..24h"`
	SuccessThreshold int           `key:"success_threshold" default:"2" range:"1..1000000"`
}

// Node has the settings of this process alone.
type Node struct {
	// ID is stable over restarts; where none is set, Load takes the host's name.
	ID string `key:"id" default:"" check:"name"`
	// Capacity is the node's relative share of the partitions.
	Capacity int `key:"capacity" default:"1" range:"1..1000"`
}

// MongoDB says where the log is and what of it to read.
type MongoDB struct {
	URI URI `key:"uri" default:"mongodb://127.0.0.1:27017/?replicaSet=rs0" secret:"yes"`
	// Watch has namespaces, db.coll or db.*; empty means all but MongoDB's own databases and the
	// streamer's.
	Watch []string `key:"watch" default:"" check:"namespace"`
	// Operations are the kinds of change to read; empty means all.
	Operations []string `key:"operations" default:"" one:"insert update replace delete"`
	// FullDocument is the change stream option of that name.
	FullDocument string `key:"full_document" default:"default" one:"default updateLookup whenAvailable required"`
	// FullDocumentBeforeChange is the change stream option of that name.
	FullDocumentBeforeChange string `key:"full_document_before_change" default:"off" one:"off whenAvailable required"`
	// MaxAwait is how long the server waits for a change before it answers with none; 0 is 1 s for
	// a replica set, 100 ms for a sharded cluster.
	MaxAwait time.Duration `key:"max_await" default:"0s" range:"0s..1m"`
	// Tick is how often a sharded cluster's shards are asked to advance while changes may wait for
	// them; 0 is never.
	Tick time.Duration `key:"tick" default:"0s" range:"0s..10s"`
	// MaxStreams bounds the change streams of this node, the tail included.
	MaxStreams int `key:"max_streams" default:"5" range:"2..1000"`
	// RingSize bounds the replies that the tail holds.
	RingSize int64 `key:"ring_size" default:"48MiB" range:"1MiB..1TiB"`
	// Prefetch bounds how far a reader fetches ahead of its foremost cursor, in bytes.
	Prefetch int64 `key:"prefetch" default:"16MiB" range:"1B..1TiB"`
	// HeadRoomWarning and HeadRoomCritical are thresholds of the log time that a position has left.
	HeadRoomWarning  time.Duration `key:"head_room_warning" default:"1h" range:"1s..8760h"`
	HeadRoomCritical time.Duration `key:"head_room_critical" default:"15m" range:"1s..8760h"`
	// Outage is the longest outage of the nodes that must be survived without a loss; `streamer
	// check` compares the oplog with it.
	Outage time.Duration `key:"outage" default:"1h" range:"0s..8760h"`
	// ServerSelectionTimeout is how long to look for a server before it counts as unreachable.
	ServerSelectionTimeout time.Duration `key:"server_selection_timeout" default:"30s" range:"1ms..1h"`
}

// Etcd has the address of etcd, and the prefix of the streamer's keys.
type Etcd struct {
	// Endpoints are the addresses of all members: host:port, optionally with http:// or https://.
	Endpoints []string `key:"endpoints" default:"127.0.0.1:2379" check:"endpoint"`
	// Prefix begins with a slash and does not end with one.
	Prefix      string        `key:"prefix" default:"/streamer" check:"prefix"`
	Username    string        `key:"username" default:""`
	Password    Secret        `key:"password" default:"" secret:"yes"`
	TLS         TLS           `key:"tls"`
	DialTimeout time.Duration `key:"dial_timeout" default:"5s" range:"1ms..1h"`
}

// TLS names PEM files; all empty means no TLS unless an endpoint asks for it.
type TLS struct {
	CAFile   string `key:"ca_file" default:""`
	CertFile string `key:"cert_file" default:""`
	KeyFile  string `key:"key_file" default:""`
}

// ServerTLS names the PEM files of a server; all empty means no TLS.
type ServerTLS struct {
	CertFile string `key:"cert_file" default:""`
	KeyFile  string `key:"key_file" default:""`
	// ClientCAFile has the authorities that clients' certificates must come from; ClientOptional
	// lets in clients without one too.
	ClientCAFile   string `key:"client_ca_file" default:""`
	ClientOptional bool   `key:"client_optional" default:"false"`
}

// Rescan says which documents are read again after a loss.
type Rescan struct {
	// Collections are namespaces, db.coll.
	Collections []string `key:"collections" default:"" check:"collection"`
	// PageSize bounds the documents that are read at a time, Rate those that are read in a second.
	// See Page.
	PageSize int `key:"page_size" default:"2000" range:"1..10000"`
	Rate     int `key:"rate" default:"1000" range:"1..10000000"`
}

// Page returns how many documents are read at a time: more than usualPage only if half a second at
// the rate pays for them, because others wait for their turn meanwhile.
func (r Rescan) Page() int { return min(r.PageSize, max(usualPage, r.Rate/2)) }

const usualPage = 500

// HTTP is the node's HTTP server and its event streams.
type HTTP struct {
	// Listen is host:port; without a host, all addresses of the machine.
	Listen string `key:"listen" default:"127.0.0.1:8080" check:"address"`
	// ProbesListen is host:port of probes and metrics, in plaintext; empty means Listen.
	ProbesListen string `key:"probes_listen" default:"" check:"listener"`
	// Advertise is host:port at which other nodes reach the probes; empty means where they are.
	Advertise string `key:"advertise" default:"" check:"listener"`
	// TLS is its certificate, Insecure allows plaintext on addresses that other machines can reach.
	TLS      ServerTLS `key:"tls"`
	Insecure bool      `key:"insecure" default:"false"`
	// CORSOrigins are those whose pages may read event streams.
	CORSOrigins []string `key:"cors_origins" default:"" check:"origin"`
	// Heartbeat is how often an idle stream is written to.
	Heartbeat time.Duration `key:"heartbeat" default:"15s" range:"1ms..1h"`
	// StallTimeout is how long a client may take nothing before it is cut off.
	StallTimeout time.Duration `key:"stall_timeout" default:"30s" range:"1ms..1h"`
	// MaxClients bounds the event streams open at a time.
	MaxClients int `key:"max_clients" default:"1000" range:"1..1000000"`
	// Compression is that of event streams, for clients that accept it.
	Compression string `key:"compression" default:"none" one:"none gzip"`
}

// GRPC is the node's gRPC server.
type GRPC struct {
	// Listen is host:port; empty means no server.
	Listen string `key:"listen" default:"127.0.0.1:9090" check:"listener"`
	// Advertise is the address at which gateways reach this node; empty means Listen.
	Advertise string `key:"advertise" default:"" check:"listener"`
	// TLS is its certificate, Insecure allows plaintext on addresses that other machines can reach.
	TLS      ServerTLS `key:"tls"`
	Insecure bool      `key:"insecure" default:"false"`
	// HeartbeatTimeout is how long a gateway may be silent before its session is closed,
	// StallTimeout how long it may take nothing.
	HeartbeatTimeout time.Duration `key:"heartbeat_timeout" default:"30s" range:"1s..1h"`
	StallTimeout     time.Duration `key:"stall_timeout" default:"30s" range:"1s..1h"`
}

// Gateway is what gateways get.
type Gateway struct {
	// CreditEvents and CreditBytes bound the unacknowledged changes of a session.
	CreditEvents int   `key:"credit_events" default:"65536" range:"1..100000000"`
	CreditBytes  int64 `key:"credit_bytes" default:"16MiB" range:"1KiB..1TiB"`
	// QueueBytes bounds the memory of the unacknowledged changes of all sessions.
	QueueBytes int64 `key:"queue_bytes" default:"256MiB" range:"1MiB..1TiB"`
	// AckTimeout is how long a gateway may acknowledge none of its changes before its session is
	// closed; 0 means for ever.
	AckTimeout time.Duration `key:"ack_timeout" default:"10m" range:"0s..8760h"`
	// MaxSessions bounds the gateways, MaxSubscriptions the subscriptions of each.
	MaxSessions      int `key:"max_sessions" default:"1000" range:"1..1000000"`
	MaxSubscriptions int `key:"max_subscriptions" default:"10000" range:"1..1000000"`
	// MaxFilterBytes bounds the memory of all filters of an identity, as estimated, with the names
	// and fields that its clients choose.
	MaxFilterBytes int64 `key:"max_filter_bytes" default:"64MiB" range:"1MiB..1TiB"`
	// SubscribeRate is how many subscriptions a gateway may change a second, SubscribeBurst how
	// many at once.
	SubscribeRate  int `key:"subscribe_rate" default:"200" range:"1..1000000"`
	SubscribeBurst int `key:"subscribe_burst" default:"10000" range:"1..1000000"`
}

// Notices has the settings of notices to operators.
type Notices struct {
	// Keep is how many notices a node shows, and how many of the whole cluster etcd keeps, for TTL
	// at least.
	Keep    int           `key:"keep" default:"1000" range:"10..10000"`
	TTL     time.Duration `key:"ttl" default:"24h" range:"1m..8760h"`
	Webhook Webhook       `key:"webhook"`
}

// Webhook says where notices are posted.
type Webhook struct {
	// URL is an address of http or https; empty means nowhere.
	URL HookURL `key:"url" default:"" secret:"yes"`
	// Secret signs the posted notices.
	Secret Secret `key:"secret" default:"" secret:"yes" check:"signing"`
	// Insecure allows plaintext to addresses of other machines.
	Insecure bool `key:"insecure" default:"false"`
	// Severity is the least that is posted.
	Severity string `key:"severity" default:"info" one:"info warning critical"`
	// Timeout bounds an attempt, Attempts says how many there are for each delivery.
	Timeout  time.Duration `key:"timeout" default:"5s" range:"100ms..1m"`
	Attempts int           `key:"attempts" default:"8" range:"1..20"`
	// In a Window the first notices of each severity are posted singly, as many as Burst, and the
	// others as one summary.
	Window time.Duration `key:"window" default:"1m" range:"1s..1h"`
	Burst  int           `key:"burst" default:"10" range:"1..1000"`
	// Queue bounds the deliveries that wait.
	Queue int `key:"queue" default:"100" range:"1..10000"`
}

// Supervisor has the settings for the supervision of components. Its first four keys are those of
// the design, and have hard limits (findLocked).
type Supervisor struct {
	// HeartbeatInterval is how often every component is asked, MissedHeartbeatsToAlert after how
	// many misses in a row it is down.
	HeartbeatInterval       time.Duration `key:"heartbeat_interval" default:"30s" range:"500ms.."`
	MissedHeartbeatsToAlert int           `key:"missed_heartbeats_to_alert" default:"3" range:"1.."`
	AutoRestart             bool          `key:"auto_restart" default:"true"`
	// PageOnFailure cannot be false.
	PageOnFailure bool `key:"page_on_failure" default:"true"`
	// StallAfter is for how long a component may make no progress although it has something to do,
	// LivezAfter from when on /livez fails for it.
	StallAfter time.Duration `key:"stall_after" default:"10s" range:"1s..1h"`
	LivezAfter time.Duration `key:"livez_after" default:"3m" range:"10s..24h"`
	// RestartBudget is how many restarts of a component there are within RestartWindow.
	RestartBudget int           `key:"restart_budget" default:"3" range:"0..100"`
	RestartWindow time.Duration `key:"restart_window" default:"10m" range:"10s..24h"`
	// ReportRetention is how long reports are kept at least.
	ReportRetention time.Duration `key:"report_retention" default:"720h" range:"1h..8760h"`
	// PingURL is asked after every sweep; empty means none.
	PingURL HookURL `key:"ping_url" default:"" secret:"yes"`
	// CAFile has the authorities that the nodes' certificates must come from; empty means those of
	// the machine.
	CAFile string `key:"ca_file" default:""`
}

// Access controls which clients may connect; without a file all may.
type Access struct {
	// IdentitiesFile lists tokens, as hashes, and certificates' subjects, with the rights of each.
	IdentitiesFile string `key:"identities_file" default:""`
	// JWKSFile has the public keys of an issuer of JWTs, which must be made for one of the
	// audiences.
	JWKSFile  string   `key:"jwks_file" default:""`
	Issuer    string   `key:"issuer" default:""`
	Audiences []string `key:"audiences" default:""`
	// Leeway is how far the issuer's clock may be off.
	Leeway time.Duration `key:"leeway" default:"30s" range:"1ms..5m"`
	// Recheck is how often the right of an open connection is checked again.
	Recheck time.Duration `key:"recheck" default:"30s" range:"1s..1h"`
	// Share is the percentage of a node's sessions, event streams, streams of notices and
	// connections that one identity may have, and StartsPerSecond how many of them and of requests
	// it may begin, unless its own limits say otherwise.
	Share           int `key:"share" default:"50" range:"1..100"`
	StartsPerSecond int `key:"starts_per_second" default:"20" range:"1..1000000"`
	// ConnectionsPerAddress bounds the connections of one remote address to a port; 0 is half of
	// the port's limit.
	ConnectionsPerAddress int `key:"connections_per_address" default:"0" range:"0..1000000"`
}

// Handoff says how partitions move from node to node.
type Handoff struct {
	// Overlap is how long the former owner of a partition delivers it to clients that follow the
	// owners, and how long a node that stops serves subscribers that have not connected to another
	// node yet.
	Overlap time.Duration `key:"overlap" default:"1s" range:"0s..1m"`
}

// Log has the level and the format of the log.
type Log struct {
	Level  slog.Level `key:"level" default:"info" one:"debug info warn error"`
	Format string     `key:"format" default:"text" one:"text json"`
}

// Debug is what lets an operator look inside a running node; all of it is off by default.
type Debug struct {
	// Listen is a loopback host:port; empty means no listener.
	Listen string `key:"listen" default:"" check:"loopback"`
	// DumpDir is the folder for flight recordings; empty means that none are written.
	DumpDir string `key:"dump_dir" default:""`
	// DumpMax is how many of them stay there.
	DumpMax int `key:"dump_max" default:"10" range:"1..1000"`
	// LagThreshold is the lag of a partition from which one is written.
	LagThreshold time.Duration `key:"lag_threshold" default:"30s" range:"1s..24h"`
	// StallThreshold is how long a lagging partition may make no progress before one is written.
	StallThreshold time.Duration `key:"stall_threshold" default:"30s" range:"1s..24h"`
}

// Retention says where the log is kept beyond the oplog.
type Retention struct {
	// Store is file:// and an absolute path, or s3:// and a bucket, with the options endpoint and
	// region; empty means that nothing is kept.
	Store string `key:"store" default:"" check:"store"`
	// Interval is after how long a segment ends.
	Interval time.Duration `key:"interval" default:"5m" range:"1s..1h"`
	// MaxAge and MaxBytes bound what is kept. Without a bound of the age, MaxAge is 0.
	MaxAge   time.Duration `key:"max_age" default:"168h" range:"0s..87600h"`
	MaxBytes int64         `key:"max_bytes" default:"100GiB" range:"1MiB..1024TiB"`
}

// Tracing says where traces go.
type Tracing struct {
	// Endpoint is the URL of an OTLP/HTTP receiver; without a path, /v1/traces is used. Empty means
	// that nothing is traced.
	Endpoint string `key:"endpoint" default:"" check:"receiver"`
	// Headers go with every request, such as Authorization. There is one in each line.
	Headers Headers `key:"headers" default:"" secret:"yes"`
	// Ratio is the share of traces that are recorded.
	Ratio float64 `key:"ratio" default:"0.01" range:"0..1"`
}

// Reliability has the keys of the reliability design, section 12, and checkpoint.max_unsaved.
type Reliability struct {
	Checkpoint     Checkpoint     `key:"checkpoint"`
	Dedup          Dedup          `key:"dedup"`
	GapDetection   GapDetection   `key:"gap_detection"`
	CircuitBreaker CircuitBreaker `key:"circuit_breaker"`
	// LagThreshold is the lag above which a partition's state is lagging.
	LagThreshold time.Duration `key:"lag_threshold" default:"30s" range:"1ms..24h"`
	Shutdown     Shutdown      `key:"shutdown"`
}

// Where checkpoints are kept.
const (
	BackendEtcd  = "etcd"
	BackendMongo = "mongo"
)

// Checkpoint says where checkpoints are kept and when they are due.
type Checkpoint struct {
	Backend string `key:"backend" default:"etcd" one:"etcd mongo"`
	// Database is that of MongoDB, if it is the backend.
	Database   string        `key:"database" default:"streamer" check:"database"`
	Interval   time.Duration `key:"interval" default:"5s" range:"1ms..1h"`
	EventCount int           `key:"event_count" default:"1000" range:"1..1000000000"`
	// MinInterval is the least time between two rounds of saves; it is at most Interval.
	MinInterval time.Duration `key:"min_interval" default:"100ms" range:"1ms..1m"`
	// MaxUnsaved is how many events a shared subscriber may acknowledge after its last checkpoint
	// while checkpoints cannot be saved.
	MaxUnsaved int `key:"max_unsaved" default:"1000000" range:"1..1000000000"`
	// IdentityRate bounds the cost of an identity's large checkpoints for the store, in bytes a
	// second.
	IdentityRate int64 `key:"identity_rate" default:"64KiB" range:"1KiB..1GiB"`
}

// Dedup is the window of each reader.
type Dedup struct {
	Enabled bool `key:"enabled" default:"true"`
	// CacheSize is in events of one cluster time, for each reader.
	CacheSize int           `key:"cache_size" default:"10000" range:"1..10000000"`
	TTL       time.Duration `key:"ttl" default:"3m" range:"1ms..24h"`
}

// GapDetection says which jump of cluster time counts as a gap where continuity is unproven.
type GapDetection struct {
	Enabled bool          `key:"enabled" default:"true"`
	MaxGap  time.Duration `key:"max_gap" default:"5m" range:"1s..720h"`
}

// CircuitBreaker opens after Threshold failures in a row and tries again after Timeout.
type CircuitBreaker struct {
	Threshold int           `key:"threshold" default:"5" range:"1..1000000"`
	Timeout   time.Duration `key:"timeout" default:"30s" range:"1ms..1h"`
}

// Shutdown bounds the two steps of a planned stop.
type Shutdown struct {
	// DrainTimeout is for the partitions of a node that stops to move to others of its cluster.
	DrainTimeout time.Duration `key:"drain_timeout" default:"30s" range:"0s..1h"`
	// FlushTimeout bounds the wait for acknowledgements of changes in flight.
	FlushTimeout time.Duration `key:"flush_timeout" default:"10s" range:"1ms..1h"`
	// CheckpointTimeout is for the last marks to be saved.
	CheckpointTimeout time.Duration `key:"checkpoint_timeout" default:"5s" range:"1ms..1h"`
}
