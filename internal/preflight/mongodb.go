package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// A release is a version of MongoDB without its patch number.
type release struct{ major, minor int }

func (r release) before(s release) bool {
	return r.major < s.major || r.major == s.major && r.minor < s.minor
}

// judgeVersion judges MongoDB's version. 4.2 is the first with startAfter and post-batch tokens at
// every scope; 7.0 is the oldest that MongoDB maintains
// (mongodb.com/legal/support-policy/lifecycles, looked at in 2026).
func judgeVersion(text string) finding {
	oldest, maintained := release{4, 2}, release{7, 0}
	parts := strings.SplitN(text, ".", 3)
	var r release
	var err error
	if len(parts) < 2 {
		err = strconv.ErrSyntax
	} else if r.major, err = strconv.Atoi(parts[0]); err == nil {
		r.minor, err = strconv.Atoi(parts[1])
	}
	switch {
	case err != nil:
		return warning(fault.MongoVersion, "the server calls its version %q", text)
	case r.before(oldest):
		return failure(fault.MongoVersion, "%s is older than %d.%d", text, oldest.major, oldest.minor)
	case r.before(maintained):
		return warning(fault.MongoVersion, "%s works, and is no longer maintained by MongoDB", text)
	}
	return fine("%s", text)
}

// judgeDirect judges a direct connection to one server, by the other members of its deployment.
func judgeDirect(identity string, others []string) finding {
	if len(others) > 0 {
		return warning(fault.MongoOption, "%s: directConnection reads one server and follows no election; the set has others: %s", identity, few(others))
	}
	return fine("%s", identity)
}

// judgeStreams judges what change streams can do.
func judgeStreams(progress, startAfter bool) finding {
	switch {
	case !progress:
		return failure(fault.MongoResume, "an empty reply carries no post-batch resume token")
	case !startAfter:
		return failure(fault.MongoResume, "startAfter is refused")
	}
	return fine("post-batch resume tokens and startAfter")
}

// judgeSplit judges whether large events come in fragments.
func judgeSplit(split bool) finding {
	if !split {
		return warning(fault.MongoSplit, "an event above 16 MiB comes with less in it, or is stepped over and told")
	}
	return fine("large events are split")
}

// judgeNamespaces judges by their kinds whether the configured namespaces can have changes.
func judgeNamespaces(kinds map[change.NamespaceKind][]string) finding {
	var text []string
	tell := func(what string, kind change.NamespaceKind) {
		if names := kinds[kind]; len(names) > 0 {
			text = append(text, what+": "+few(names))
		}
	}
	tell("views, which have no changes", change.NamespaceView)
	tell("time series, which have no changes", change.NamespaceTimeSeries)
	dead := len(text) > 0
	tell("there is no collection yet of", change.NamespaceMissing)
	switch {
	case dead:
		return failure(fault.SessionUnwatched, "%s", strings.Join(text, "; "))
	case len(text) > 0:
		return warning(fault.MongoMissing, "%s", strings.Join(text, "; "))
	case len(kinds[change.NamespaceUnknown]) > 0:
		return fine("the user may not list these, so nobody can tell whether they exist: %s", few(kinds[change.NamespaceUnknown]))
	case len(kinds) == 0:
		return fine("none is named")
	}
	return fine("all that are named exist")
}

// judgeImages judges whether the collections keep the images that the modes for documents after and
// before a change require. missing are the collections that do not.
func judgeImages(after, before string, missing []string) finding {
	var asked []string
	if after == "whenAvailable" || after == "required" {
		asked = append(asked, "mongodb.full_document is "+after)
	}
	if before == "whenAvailable" || before == "required" {
		asked = append(asked, "mongodb.full_document_before_change is "+before)
	}
	switch {
	case len(asked) == 0:
		return fine("not asked for: mongodb.full_document is %s, mongodb.full_document_before_change is %s", after, before)
	case len(missing) == 0:
		return fine("every watched collection keeps them")
	}
	return warning(fault.MongoImages, "%s, and these keep none: %s", strings.Join(asked, ", "), few(missing))
}

// An oplogFacts describes the oplog.
type oplogFacts struct {
	// First and Last are the times of its ends; Readable is false if the first is unknown.
	First, Last time.Time
	Readable    bool
	// Size and MaxSize are in bytes; MaxSize is 0 where they are unknown.
	Size, MaxSize int64
	// Oldest are the keys of the configuration that ask to begin with the oldest change.
	Oldest []string
}

// leastSample is the least of a log that is not full yet from which is concluded how far it will
// reach.
const leastSample = 5 * time.Minute

// fullFrom is the share of its size from which an oplog counts as full: then new entries replace
// the oldest.
const fullFrom = 0.9

// judgeOplog judges whether the log reaches back over an outage. One that is not full yet is judged
// by how far it will reach at this pace.
func judgeOplog(l oplogFacts, outage time.Duration) finding {
	if !l.Readable {
		text := "how far it reaches back cannot be told"
		if len(l.Oldest) > 0 {
			text += "; a first start at the oldest change will be refused: " + strings.Join(l.Oldest, ", ")
		}
		return warning(fault.LogHidden, "%s", text)
	}
	reach := l.Last.Sub(l.First)
	text := "it reaches back " + rounded(reach)
	if l.MaxSize > 0 && l.Size > 0 {
		if share := float64(l.Size) / float64(l.MaxSize); share < fullFrom {
			if reach < leastSample {
				return fine("%s and is filled to %.0f %%: too young to tell how far it will reach", text, 100*share)
			}
			reach = time.Duration(min(float64(reach)/share, float64(maxReach)))
			text += fmt.Sprintf(" and is filled to %.0f %%: at this pace it will reach back %s", 100*share, rounded(reach))
		}
	}
	if reach < outage {
		return warning(fault.LogShort, "%s, an outage of %s is to be survived", text, rounded(outage))
	}
	return fine("%s", text)
}

// maxReach bounds the extrapolation, because a nearly empty log would seem to last for ever.
const maxReach = 10 * 365 * 24 * time.Hour

func rounded(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	case d >= 2*time.Minute:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.Round(time.Second).String()
}

// majorityLimit is how much the majority may lag the last operation.
const majorityLimit = 10 * time.Second

// judgeMajority judges whether a majority has the last writes. The time is zero if it is unknown,
// through mongos.
func judgeMajority(last, majority time.Time) finding {
	if majority.IsZero() {
		return fine("not told through mongos")
	}
	if behind := last.Sub(majority); behind > majorityLimit {
		return failure(fault.MongoMajority, "it is %s behind the last operation", rounded(behind))
	}
	return fine("it has the last operation")
}

// judgeShards judges how late changes of a sharded cluster arrive. refused is why shards cannot be
// asked to advance, configRefused why the config servers cannot; nil where they can.
func judgeShards(sharded bool, tick time.Duration, refused, configRefused error) finding {
	const held = "mongos holds a change until every shard is past it, up to 10s where a shard has no writes"
	switch {
	case !sharded:
		return fine("a replica set: a change is sent as soon as a majority has it")
	case tick == 0:
		return warning(fault.MongoShards, "%s: mongodb.tick is 0s", held)
	case refused != nil:
		return warning(fault.MongoShards, "%s: mongodb.tick is %s, and is refused: %s", held, tick, refused)
	case configRefused != nil:
		return warning(fault.MongoShards, "mongos holds a change until the config servers are past it, up to 1s: they cannot be asked to advance: %s", configRefused)
	}
	return fine("shards are asked to advance every %s while changes may wait for them", tick)
}

// skewLimit is how far clocks may be apart.
const skewLimit = 5 * time.Second

// judgeClock judges the server's clock by this machine's, which was read before and after.
func judgeClock(server, sent, received time.Time) finding {
	apart := time.Duration(0)
	switch {
	case server.Before(sent):
		apart = server.Sub(sent)
	case server.After(received):
		apart = server.Sub(received)
	}
	if apart.Abs() > skewLimit {
		way := "ahead of"
		if apart < 0 {
			way = "behind"
		}
		return warning(fault.ClockSkew, "MongoDB's clock is %s %s this machine's", apart.Abs().Round(time.Second), way)
	}
	return fine("the clocks agree")
}

// ownConnections bounds the connections of a node besides its streams: oplog checks, checkpoints,
// snapshots, and the driver's own monitors.
const ownConnections = 10

// judgeConnections judges whether there are enough connections for the streams. available is how
// many the server still accepts, unknown if known is false.
func judgeConnections(streams, available int, known bool) finding {
	need := 2*streams + ownConnections
	switch {
	case known && available < need:
		return warning(fault.MongoConnections, "the server takes %d more; a node may need %d", available, need)
	case !known:
		return fine("a node may need %d; the server does not tell how many it still takes", need)
	}
	return fine("a node may need %d; the server takes %d more", need, available)
}

// judgeFiles judges the limit of open files of this process, which need not be that of a node.
func judgeFiles(needed, limit int) finding {
	if limit < needed {
		return warning(fault.NodeFiles, "this process may have %d open files; a node may need %d", limit, needed)
	}
	return fine("a node may need %d open files", needed)
}

// judgeOptions judges the options of the connection string by their remarks.
func judgeOptions(remarks []string) finding {
	if len(remarks) > 0 {
		return warning(fault.MongoOption, "%s", strings.Join(remarks, "; "))
	}
	return fine("the options of mongodb.uri are used as they are")
}

// checkpointFacts describes the existing checkpoints.
type checkpointFacts struct {
	// Created says that there is an origin, Ours that it is of this deployment.
	Created, Ours  bool
	Origin, Source string
	// Subscribers counts those that have one.
	Subscribers int
	// Shared and Exclusive are the earliest times of the checkpoints of either kind of subscriber,
	// Latest is the latest of all.
	Shared, Exclusive []time.Time
	Latest            time.Time
	// First is the log's oldest entry, zero where unknown; Now the deployment's time, which may be
	// Slack too early.
	First, Now time.Time
	Slack      time.Duration
	// Growing says that nothing leaves the log yet, Spare by how much log time it can grow.
	Growing bool
	Spare   time.Duration
	// Halt says that a subscriber stops where its position is lost.
	Halt bool
}

// judgeCheckpoints judges whether subscribers can resume from their checkpoints. The lost
// checkpoint of an exclusive subscriber does not prevent a start, because that subscriber may never
// come back.
func judgeCheckpoints(c checkpointFacts) finding {
	switch {
	case !c.Created:
		return fine("none yet: the first start begins by start_from")
	case !c.Ours:
		return failure(fault.CheckpointSource, "they are of %s, mongodb.uri leads to %s", c.Origin, c.Source)
	}
	text := fmt.Sprintf("%d subscribers have one", c.Subscribers)
	if c.Subscribers == 0 {
		return fine("%s", text)
	}
	lost := func(at time.Time) bool { return !c.First.IsZero() && at.Before(c.First) }
	oldest := slices.MinFunc(slices.Concat(c.Shared, c.Exclusive), time.Time.Compare)
	switch {
	case c.Latest.Sub(c.Now) > c.Slack:
		return failure(fault.LogAhead, "%s; the latest is of %s, MongoDB is at %s", text, c.Latest.Format(time.RFC3339), c.Now.Format(time.RFC3339))
	case c.Halt && slices.ContainsFunc(c.Shared, lost):
		return failure(fault.LogHistoryLost, "%s; the earliest is of %s, the oplog begins at %s", text, oldest.Format(time.RFC3339), c.First.Format(time.RFC3339))
	case lost(oldest):
		return warning(fault.LogHistoryLost, "%s; the earliest is of %s, the oplog begins at %s: what is between will be told as lost",
			text, oldest.Format(time.RFC3339), c.First.Format(time.RFC3339))
	case c.First.IsZero():
		return fine("%s", text)
	case c.Growing:
		return fine("%s; nothing leaves the oplog before it has reached its size", text)
	}
	return fine("%s; the earliest leaves the oplog in %s", text, rounded(oldest.Sub(c.First)+c.Spare))
}
