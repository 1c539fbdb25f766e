package devmongo

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/dev/mongo/oplog"
)

// Config configures a server. The zero Config is a MongoDB 4.4 replica set of one node on a free
// port.
type Config struct {
	// Addr is where to listen, host:port. Defaults to "127.0.0.1:0".
	Addr string
	// Release is the MongoDB release to be: "4.4", "6.0", "7.0", "8.0" or "9.0". Defaults to "4.4".
	Release string
	// Preset is the name of a set of changes to the behaviour of any release. Defaults to none.
	Preset string
	// Adjust changes single behaviours after that. Defaults to none.
	Adjust func(*Profile)
	// Standalone makes a server that is no replica set: no change streams, no transactions.
	Standalone bool
	// Members are other members of the replica set, host:port, in replies to clients. Nothing is
	// replicated: start them from one snapshot to give them the same log.
	Members []string
	// Primary, if it is one of Members, makes this server a secondary: it takes no writes.
	Primary string
	// OplogBytes bounds the oplog. Defaults to 64 MiB.
	OplogBytes int64
	// Snapshot is a file that keeps data and oplog over restarts; it is read by Listen and written
	// by Run. Defaults to none.
	Snapshot string
	// NoopEvery makes an idle server write no-op entries, so that high watermarks move. Defaults to
	// the profile's value.
	NoopEvery time.Duration
	// HelloAwait bounds how long a waiting hello waits. A driver that disconnects just as its
	// monitor begins such a hello waits for it to end, which takes ten seconds now and then; tests
	// set less. Defaults to what clients ask for.
	HelloAwait time.Duration
	// Users are the users with their privileges. Defaults to none: without users, every client may
	// do everything.
	Users []User
	// TLS encrypts connections; Certificates are needed, ClientAuth and ClientCAs are for users
	// with certificates. Defaults to plaintext.
	TLS *tls.Config
}

// profile is how the server behaves.
func (c Config) profile() Profile {
	p, _ := profileOf(c.Release, c.Preset) // the names are valid
	if c.Adjust != nil {
		c.Adjust(&p)
	}
	return p
}

func (c Config) withDefaults() Config {
	c.Addr = cmp.Or(c.Addr, "127.0.0.1:0")
	c.Release = cmp.Or(c.Release, string(oplog.R44))
	c.OplogBytes = cmp.Or(c.OplogBytes, 64<<20)
	return c
}

// Validate reports everything that is wrong with the configuration.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if _, err := profileOf(c.Release, c.Preset); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, validateUsers(c.Users))
	if c.Primary != "" && !slices.Contains(c.Members, c.Primary) {
		errs = append(errs, fmt.Errorf("primary %s is not among the other members", c.Primary))
	}
	if c.OplogBytes < 0 || c.NoopEvery < 0 || c.HelloAwait < 0 {
		errs = append(errs, errors.New("sizes and durations must not be negative"))
	}
	return errors.Join(errs...)
}

// A Profile is how a server behaves.
type Profile struct {
	// Release decides the shapes of replies, events, tokens and log entries.
	Release oplog.Release
	// StrictStart refuses a stream that starts at the time of the log's first entry, or at its high
	// watermark: the log must hold an entry before it. Servers below 5.0 do.
	StrictStart bool
	// SplitsEvents knows $changeStreamSplitLargeEvent. Servers since 6.0.9 do.
	SplitsEvents bool
	// SplitsVary makes every second opening of a stream split large events into smaller fragments,
	// as if it looked up another document.
	SplitsVary bool
	// TokensGoBack makes the first post-batch token of a resumed stream a second earlier than where
	// it was resumed (SERVER-134795).
	TokensGoBack bool
	// ControlTokens makes the post-batch tokens of an idle stream those of control events, which
	// cannot be resumed (SERVER-135376): 260 refuses them when a stream is opened, 280 with its
	// next event. Zero is none.
	ControlTokens int
	// MostEvents is how many events a reply of a change stream has at most. Zero is as many as fit.
	MostEvents int
	// TruncateBeforeOpening is how many of the log's oldest entries go just before each change
	// stream opens; the newest one stays.
	TruncateBeforeOpening int
	// BeforeReply, if there is one, is called with a command's name and its db.coll after the
	// command ran and before the operation time of its reply is computed. A real server computes it
	// that late: it covers changes that the command's result has not.
	BeforeReply func(command, namespace string)
	// DenyLocal refuses to read the database local, as a user without rights on it is refused.
	DenyLocal bool
	// JournalEvery is how often the journal is written. Until then a change without a waiting
	// request (w: majority, a read after its time) is not committed: change streams and majority
	// reads do not see it. Zero writes it at once.
	JournalEvery time.Duration
	// NoopEvery is how often an idle server, or each idle shard, writes an entry that changes
	// nothing, so that high watermarks move. Zero is never.
	NoopEvery time.Duration
	// StrangerEvery is how often, on average, a foreign client writes: into stranger.noise, or a
	// no-op. Zero is never, and so it is on a secondary.
	StrangerEvery time.Duration
	// Delay is the longest time that a command waits before it runs; it waits half of it on
	// average.
	Delay time.Duration
	// Mongos speaks as a router of a sharded cluster does: there is no replica set, and no oplog to
	// read.
	Mongos bool
	// Shards is the number of shards of the router, without config servers. The router holds a
	// change until all other shards have reported a later time. Zero is a single shard that reports
	// its time at once.
	Shards int
	// RenamesMove has a document's shard depend on its collection's name, too: events name another
	// shard after a rename (SERVER-120696).
	RenamesMove bool
	// ConfigNoopEvery is how often the config servers write an entry that changes nothing.
	ConfigNoopEvery time.Duration
}

// presets change a profile, by name.
func presets() map[string]func(*Profile) {
	return map[string]func(*Profile){
		// lively is a server that others use as well.
		"lively": func(p *Profile) {
			p.JournalEvery = 100 * time.Millisecond
			p.NoopEvery = 10 * time.Second
			p.StrangerEvery = 50 * time.Millisecond
			p.Delay = 5 * time.Millisecond
		},
		// sharded is a router with two shards, whose idle times are those of a real cluster.
		"sharded": func(p *Profile) {
			p.Mongos = true
			p.Shards = 2
			p.NoopEvery = 10 * time.Second
			p.ConfigNoopEvery = time.Second
		},
		string(oplog.R44): func(p *Profile) { p.Release, p.StrictStart = oplog.R44, true },
		string(oplog.R60): func(p *Profile) { p.Release, p.SplitsEvents = oplog.R60, true },
		string(oplog.R70): func(p *Profile) { p.Release, p.SplitsEvents = oplog.R70, true },
		string(oplog.R80): func(p *Profile) { p.Release, p.SplitsEvents = oplog.R80, true },
		string(oplog.R90): func(p *Profile) {
			p.Release = oplog.R90
			p.SplitsEvents = true
			p.TokensGoBack = true
			p.ControlTokens = 280
			p.RenamesMove = true
		},
	}
}

// profileOf makes the profile of the named presets, each applied to what those before it made;
// empty names are left out. The first one must be a release.
func profileOf(names ...string) (p Profile, err error) {
	known := presets()
	for _, name := range names {
		if name == "" {
			continue
		}
		apply := known[name]
		if apply == nil {
			return p, fmt.Errorf("profile %q: devmongo has %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		apply(&p)
	}
	if p.Release == "" {
		return p, fmt.Errorf("profile %q names no release", names)
	}
	return p, nil
}
