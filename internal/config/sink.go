package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/mongostream/streamer/fault"
)

// The types of sinks.
const (
	SinkKafka  = "kafka"
	SinkNATS   = "nats"
	SinkHTTP   = "http"
	SinkFile   = "file"
	SinkStdout = "stdout"
)

// A Sink publishes changes to another system.
type Sink struct {
	Name string `key:"name" default:"" check:"name"`
	Type string `key:"type" default:"" one:"kafka nats http file stdout"`
	// Subscriptions select its changes; none means all.
	Subscriptions []SinkSubscription `key:"subscriptions"`
	// Start is where it begins without a checkpoint.
	Start SinkStart `key:"start" default:"now"`
	// Format is that of the messages; LongText writes integers that readers of JSON may round as
	// text.
	Format   string `key:"format" default:"relaxed" one:"relaxed canonical bson debezium cloudevents"`
	LongText bool   `key:"long_text" default:"false"`
	// Attempts is how often a change is published that the target refuses. DeadLetter is the topic,
	// subject, URL or path of those that were refused for good; empty halts the sink.
	Attempts   int    `key:"attempts" default:"5" range:"1..1000"`
	DeadLetter string `key:"dead_letter" default:""`
	// Losses is the topic or subject of losses.
	Losses string          `key:"losses" default:"streamer.losses"`
	Kafka  SinkKafkaTarget `key:"kafka"`
	NATS   SinkNATSTarget  `key:"nats"`
	HTTP   SinkHTTPTarget  `key:"http"`
	File   SinkFileTarget  `key:"file"`
}

// A SinkSubscription is a filter, as gateways have them.
type SinkSubscription struct {
	// Namespace is db.coll or db.*; empty means all.
	Namespace  string   `key:"namespace" default:"" check:"namespace"`
	Operations []string `key:"operations" default:"" one:"insert update replace delete drop rename dropDatabase"`
	Filter     string   `key:"filter" default:""`
}

// SinkKafkaTarget is a target of type kafka.
type SinkKafkaTarget struct {
	Brokers       []string `key:"brokers" default:"" check:"broker"`
	Topic         string   `key:"topic" default:"{db}.{coll}"`
	CreateTopics  bool     `key:"create_topics" default:"false"`
	Transactional bool     `key:"transactional" default:"false"`
	Compression   string   `key:"compression" default:"lz4" one:"none gzip snappy lz4 zstd"`
	Tombstones    bool     `key:"tombstones" default:"false"`
	// MaxMessageBytes bounds a batch of records instead of the topic's max.message.bytes; 0 does
	// not.
	MaxMessageBytes int64 `key:"max_message_bytes" default:"0B" range:"0B..1GiB"`

	Timeout   time.Duration `key:"timeout" default:"30s" range:"1s..1h"`
	Mechanism string        `key:"mechanism" default:"" one:"plain scram-sha-256 scram-sha-512"`
	Username  string        `key:"username" default:""`
	Password  Secret        `key:"password" default:"" secret:"yes"`
	TLS       SinkTLS       `key:"tls"`
}

// SinkNATSTarget is a target of type nats.
type SinkNATSTarget struct {
	URL             string        `key:"url" default:"" check:"nats"`
	Subject         string        `key:"subject" default:"streamer.{db}.{coll}"`
	Stream          string        `key:"stream" default:""`
	Fence           bool          `key:"fence" default:"false"`
	AckTimeout      time.Duration `key:"ack_timeout" default:"10s" range:"100ms..10m"`
	CredentialsFile string        `key:"credentials_file" default:""`
	Token           Secret        `key:"token" default:"" secret:"yes"`
	Username        string        `key:"username" default:""`
	Password        Secret        `key:"password" default:"" secret:"yes"`
	TLS             SinkTLS       `key:"tls"`
}

// SinkHTTPTarget is a target of type http.
type SinkHTTPTarget struct {
	URL HookURL `key:"url" default:"" secret:"yes"`
	// Secret signs the requests.
	Secret Secret `key:"secret" default:"" secret:"yes" check:"signing"`
	// Insecure allows plaintext to addresses of other machines.
	Insecure bool `key:"insecure" default:"false"`
	// Allow are networks that are not public and may be reached.
	Allow   []string      `key:"allow" default:"" check:"network"`
	Batch   int           `key:"batch" default:"100" range:"1..10000"`
	Timeout time.Duration `key:"timeout" default:"10s" range:"100ms..10m"`
	// Parallel is how many partitions are sent at a time.
	Parallel int     `key:"parallel" default:"16" range:"1..1024"`
	TLS      SinkTLS `key:"tls"`
}

// SinkFileTarget is a target of type file.
type SinkFileTarget struct {
	Path string `key:"path" default:""`
	// MaxSize is the size at which a new file is begun, Keep how many earlier ones there are.
	MaxSize int64 `key:"max_size" default:"100MiB" range:"1KiB..1TiB"`
	Keep    int   `key:"keep" default:"10" range:"1..100000"`
}

// SinkTLS is that of a connection to a target.
type SinkTLS struct {
	Enabled  bool   `key:"enabled" default:"false"`
	CAFile   string `key:"ca_file" default:""`
	CertFile string `key:"cert_file" default:""`
	KeyFile  string `key:"key_file" default:""`
}

// Subscriber returns the name of the sink's subscriber. There is one standard output, whatever its
// sink is called.
func (s *Sink) Subscriber() string {
	if s.Type == SinkStdout {
		return SinkStdout
	}
	return "sink/" + s.Name
}

// AddStdout adds the sink of streamer run -o json: of type stdout, with the defaults, from where
// the cluster began.
func (c *Config) AddStdout() error {
	for i, s := range c.Sinks {
		if s.Type == SinkStdout || s.Name == SinkStdout {
			return fault.Newf(fault.ConfigConflict, "-o json is a sink of type stdout with the name stdout, but sinks[%d] has this type or name", i)
		}
	}
	var s Sink
	t := newTable(&s)
	t.forms = forms()
	t.setDefaults()
	s.Name = SinkStdout
	s.Type = SinkStdout
	s.Start = SinkStart{Origin: true}
	c.Sinks = append(c.Sinks, s)
	return nil
}

// Oldest returns the keys that ask to begin with the oldest change in the oplog.
func (c *Config) Oldest() (keys []string) {
	if c.StartFrom.Oldest {
		keys = append(keys, "start_from")
	}
	for _, s := range c.Sinks {
		if s.Start.Oldest {
			keys = append(keys, "start of sink "+s.Name)
		}
	}
	return keys
}

// Used reports whether the connection has TLS.
func (t SinkTLS) Used() bool { return t.Enabled || t.CAFile != "" || t.CertFile != "" }

// A SinkStart says where a sink without a checkpoint begins. The zero value means now.
type SinkStart struct {
	StartFrom

	// Snapshot means the current documents, and changes from now on.
	Snapshot bool
	// Origin means where the cluster began, by start_from.
	Origin bool
}

// The words for the current documents, and for the cluster's beginning.
const (
	startSnapshot = "snapshot"
	startOrigin   = "start_from"
)

// UnmarshalText reads now, earliest, snapshot, start_from, or a time of RFC 3339.
func (s *SinkStart) UnmarshalText(text []byte) error {
	switch string(text) {
	case "earliest":
		*s = SinkStart{StartFrom: StartFrom{Oldest: true}}
		return nil
	case startSnapshot:
		*s = SinkStart{Snapshot: true}
		return nil
	case startOrigin:
		*s = SinkStart{Origin: true}
		return nil
	case startOldest:
	default:
		if s.StartFrom.UnmarshalText(text) == nil {
			return nil
		}
	}
	return errors.New("must be now, earliest, snapshot, start_from, or a time such as 2026-01-31T12:00:00Z")
}

// String is the inverse of UnmarshalText.
func (s SinkStart) String() string {
	switch {
	case s.Snapshot:
		return startSnapshot
	case s.Origin:
		return startOrigin
	case s.Oldest:
		return "earliest"
	}
	return s.StartFrom.String()
}

// maxSinks bounds the sinks of a node: each is in every heartbeat, twice.
const maxSinks = 100

// findSinkConflicts complains of sinks that cannot work.
func (c *Config) findSinkConflicts(t *table) {
	if n := len(c.Sinks); n > maxSinks {
		t.complain(fault.ConfigBadValue, t.origin[fmt.Sprintf("sinks[%d]", maxSinks)], "sinks: there are %d, at most %d are served", n, maxSinks)
	}
	var names []string
	printed := ""
	written := make(map[string]string) // the keys of files
	for i := range c.Sinks {
		s := &c.Sinks[i]
		path := fmt.Sprintf("sinks[%d].", i)
		for key, file := range s.files() {
			if other, twice := written[file]; twice {
				t.conflict(true, path+key, other, "two targets would write into one file")
			}
			written[file] = path + key
		}
		need := func(missing bool, key string) {
			if missing && !t.refused[path+key] {
				t.refuse(t.key(path+key), t.origin[path[:len(path)-1]], errors.New("is needed"))
			}
		}
		need(s.Name == "", "name")
		need(s.Type == "", "type")
		if slices.Contains(names, s.Name) && s.Name != "" {
			t.refuseValue(path+"name", fmt.Errorf("%q is the name of two sinks, which would share checkpoints", s.Name))
		}
		names = append(names, s.Name)
		switch s.Type {
		case SinkKafka:
			need(len(s.Kafka.Brokers) == 0, "kafka.brokers")
		case SinkNATS:
			need(s.NATS.URL == "", "nats.url")
		case SinkHTTP:
			need(s.HTTP.URL == "", "http.url")
			need(s.HTTP.Secret == "", "http.secret")
			t.conflict(s.HTTP.URL.Plain() && !s.HTTP.Insecure, path+"http.url", path+"http.insecure",
				"http:// to another machine can be read on the way: use https://, or say that you want it")
		case SinkFile:
			need(s.File.Path == "", "file.path")
		case SinkStdout:
			if printed != "" {
				t.conflict(true, path+"type", printed, "there is one standard output")
			}
			printed = path + "type"
		}
		t.conflict((s.Kafka.Mechanism == "") != (s.Kafka.Username == ""), path+"kafka.mechanism", path+"kafka.username", "they go together")
		t.conflict(s.Kafka.Mechanism == "plain" && !s.Kafka.TLS.Used(), path+"kafka.mechanism", path+"kafka.tls.enabled", "the password could be read on the way")
		for j, tls := range []SinkTLS{s.Kafka.TLS, s.NATS.TLS, s.HTTP.TLS} {
			at := path + []string{"kafka", "nats", "http"}[j] + ".tls."
			t.conflict((tls.CertFile == "") != (tls.KeyFile == ""), at+"cert_file", at+"key_file", "they go together")
		}
		t.conflict((s.Type == SinkFile || s.Type == SinkStdout) && s.Format == "bson", path+"type", path+"format", "it has lines of text")
	}
}

// files returns the files that the sink writes, by their keys.
func (s *Sink) files() map[string]string {
	of := make(map[string]string)
	if s.Type == SinkFile && s.File.Path != "" {
		of["file.path"] = sameFile(s.File.Path)
	}
	sends := s.Type == SinkKafka || s.Type == SinkNATS // dead letters have a topic or a subject
	if !sends && s.DeadLetter != "" {
		of["dead_letter"] = sameFile(s.DeadLetter)
	}
	return of
}

// sameFile returns one path for all paths of a file, which may not exist yet: absolute, and with
// the folders that links lead to.
func sameFile(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	if linked, err := filepath.EvalSymlinks(path); err == nil {
		return linked
	}
	folder, name := filepath.Split(filepath.Clean(path))
	if linked, err := filepath.EvalSymlinks(folder); err == nil {
		folder = linked
	}
	return filepath.Join(folder, name)
}
