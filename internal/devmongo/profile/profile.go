package profile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
	// Mongos speaks as a router of a sharded cluster does: there is no replica set, and no oplog to read.
	Mongos bool
}

// presets change a profile, by name.
func presets() map[string]func(*Profile) {
	return map[string]func(*Profile){
		string(R44): func(p *Profile) { p.Release = R44 },
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
