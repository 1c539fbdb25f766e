package profile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Profile is how a server behaves.
type Profile struct {
	// Release decides the shapes of replies, events, tokens and log entries.
	Release Release
	// StrictStart refuses a stream that starts at the time of the log's first entry, or at its high watermark: the log must hold an
	// entry before it. Servers below 5.0 do.
	StrictStart bool
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
	// Delay is the longest time that a command waits before it is carried out; it waits half of it on average.
	Delay time.Duration
	// Mongos speaks as a router of a sharded cluster does: there is no replica set, and no oplog to read.
	Mongos bool
	// Shards is how many shards stand behind the router, beside config servers: a change is held until all others have told that they are
	// past its time. Zero is one that tells it at once.
	Shards int
	// ConfigNoopEvery is how often the config servers write an entry that changes nothing.
	ConfigNoopEvery time.Duration
}

// presets change a profile, by name.
func presets() map[string]func(*Profile) {
	return map[string]func(*Profile){
		// lively is a server that others use as well.
		"lively": func(p *Profile) {
			p.JournalEvery, p.NoopEvery = 100*time.Millisecond, 10*time.Second
			p.StrangerEvery, p.Delay = 50*time.Millisecond, 5*time.Millisecond
		},
		// sharded is a router with two shards, whose idle times are those of a real cluster.
		"sharded": func(p *Profile) {
			p.Mongos, p.Shards, p.NoopEvery, p.ConfigNoopEvery = true, 2, 10*time.Second, time.Second
		},
		string(R44): func(p *Profile) { p.Release, p.StrictStart = R44, true },
		string(R60): func(p *Profile) { p.Release, p.SplitsEvents = R60, true },
		string(R70): func(p *Profile) { p.Release, p.SplitsEvents = R70, true },
		string(R80): func(p *Profile) { p.Release, p.SplitsEvents = R80, true },
	}
}

// Of makes the profile of the named presets, each applied to what those before it made; empty names are left out. The first one must
// be a release.
func Of(names ...string) (p Profile, err error) {
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
