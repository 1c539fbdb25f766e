package devmongo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/internal/devmongo/oplog"
)

// A Profile is how a server behaves.
type Profile struct {
	// release decides the shapes of replies, events, tokens and log entries.
	release oplog.Release
	// strictStart refuses a stream that starts at the time of the log's first entry, or at its high watermark: the log must hold an
	// entry before it. Servers below 5.0 do.
	strictStart bool
	// SplitsEvents knows $changeStreamSplitLargeEvent. Servers since 6.0.9 do.
	SplitsEvents bool
	// SplitsVary makes every second opening of a stream split large events into smaller fragments, as if it looked up another document.
	SplitsVary bool
	// TruncateBeforeOpening is how many of the log's oldest entries go just before each change stream opens; the newest one stays.
	TruncateBeforeOpening int
	// BeforeReply, if there is one, is called with a command's name and its db.coll after the command ran and before the operation time of its reply is
	// computed. A real server computes it that late: it covers changes that the command's result has not.
	BeforeReply func(command, namespace string)
	// DenyLocal refuses to read the database local, as a user without rights on it is refused.
	DenyLocal bool
	// JournalEvery is how often the journal is written. Until then a change that nobody waits for (w: majority, a read after its time) is
	// not committed: change streams and majority reads do not see it. Zero writes it at once.
	JournalEvery time.Duration
	// NoopEvery is how often an idle server, or each idle shard, writes an entry that changes nothing, so that high watermarks move. Zero is
	// never.
	NoopEvery time.Duration
	// StrangerEvery is how often, on average, somebody else writes: into stranger.noise, or an entry that changes nothing. Zero is never, and
	// so it is on a secondary.
	StrangerEvery time.Duration
	// delay is the longest time that a command waits before it is carried out; it waits half of it on average.
	delay time.Duration
	// Mongos speaks as a router of a sharded cluster does: there is no replica set, and no oplog to read.
	Mongos bool
	// shards is how many shards stand behind the router, beside config servers: a change is held until all others have told that they are
	// past its time. Zero is one that tells it at once.
	shards int
	// ConfigNoopEvery is how often the config servers write an entry that changes nothing.
	ConfigNoopEvery time.Duration
}

// presets change a profile, by name.
func presets() map[string]func(*Profile) {
	return map[string]func(*Profile){
		// lively is a server that others use as well.
		"lively": func(p *Profile) {
			p.JournalEvery, p.NoopEvery = 100*time.Millisecond, 10*time.Second
			p.StrangerEvery, p.delay = 50*time.Millisecond, 5*time.Millisecond
		},
		// sharded is a router with two shards, whose idle times are those of a real cluster.
		"sharded": func(p *Profile) {
			p.Mongos, p.shards, p.NoopEvery, p.ConfigNoopEvery = true, 2, 10*time.Second, time.Second
		},
		string(oplog.R44): func(p *Profile) { p.release, p.strictStart = oplog.R44, true },
		string(oplog.R60): func(p *Profile) { p.release, p.SplitsEvents = oplog.R60, true },
		string(oplog.R70): func(p *Profile) { p.release, p.SplitsEvents = oplog.R70, true },
		string(oplog.R80): func(p *Profile) { p.release, p.SplitsEvents = oplog.R80, true },
	}
}

// profileOf makes the profile of the named presets, each applied to what those before it made; empty names are left out. The first one must
// be a release.
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
	if p.release == "" {
		return p, fmt.Errorf("profile %q names no release", names)
	}
	return p, nil
}
