package devmongo

import (
	"context"
	"time"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

func runServerStatus(_ context.Context, r *request, b *doc.Builder) error {
	up := time.Since(r.started)
	text, _ := version(r.release)
	st := r.stats()
	b.String("host", r.addr).String("version", text).String("process", "devmongo").Double("uptime", up.Seconds())
	b.Int64("uptimeMillis", up.Milliseconds()).Date("localTime", r.oplog.Now().UnixMilli())
	b.Open("connections").Int32("current", int32(st.ConnectionsOpen)).Int32("totalCreated", int32(r.counters.connections.Load())).End()
	b.Open("logicalSessionRecordCache").Int32("activeSessionsCount", int32(r.sessions.Count())).End()
	if !r.standalone && !r.Mongos {
		if r.truth("oplog") {
			first, _ := r.oplog.First()
			b.Open("oplog").Timestamp("latestOptime", r.oplog.Applied()).Timestamp("earliestOptime", first.TS).End()
		}
		b.Open("repl")
		primary := "ismaster"
		if r.release.Since(oplog.R60) {
			primary = "isWritablePrimary"
		}
		replication(r, b, primary)
		b.Int32("rbid", 1).End()
	}
	b.Open("storageEngine").String("name", "devmongo").Bool("supportsCommittedReads", true).Bool("persistent", r.persistent).End()
	st.append(b)
	return nil
}

func needSet(r *request) error {
	if r.Mongos {
		return wire.Errorf(0, "%s is not supported through mongos", r.name)
	}
	if r.standalone {
		return wire.Errorf(76, "not running with --replSet")
	}
	return nil
}

func runReplSetGetStatus(_ context.Context, r *request, b *doc.Builder) error {
	if err := needSet(r); err != nil {
		return err
	}
	now := r.oplog.Now().UnixMilli()
	applied, committed := r.oplog.Applied(), r.oplog.Committed()
	b.String("set", setName).Date("date", now).Int32("myState", 1).Int64("term", 1).String("syncSourceHost", "").Int32("syncSourceId", -1)
	b.Int64("heartbeatIntervalMillis", 2000).Int32("majorityVoteCount", 1).Int32("writeMajorityCount", 1)
	b.Int32("votingMembersCount", 1).Int32("writableVotingMembersCount", 1)
	b.Open("optimes")
	opTime(b, "lastCommittedOpTime", committed)
	b.Date("lastCommittedWallTime", seconds(committed))
	opTime(b, "readConcernMajorityOpTime", committed)
	b.Date("readConcernMajorityWallTime", seconds(committed))
	opTime(b, "appliedOpTime", applied)
	opTime(b, "durableOpTime", applied)
	b.Date("lastAppliedWallTime", seconds(applied)).Date("lastDurableWallTime", seconds(applied)).End()
	b.OpenArray("members").Open("0").Int32("_id", 0).String("name", r.addr).Double("health", 1).Int32("state", 1)
	b.String("stateStr", "PRIMARY").Int32("uptime", int32(time.Since(r.started).Seconds()))
	opTime(b, "optime", applied)
	b.Date("optimeDate", seconds(applied)).String("syncSourceHost", "").Int32("syncSourceId", -1).String("infoMessage", "")
	b.Int32("configVersion", 1).Int32("configTerm", 1).Bool("self", true).String("lastHeartbeatMessage", "").End().End()
	return nil
}

func runReplSetGetConfig(_ context.Context, r *request, b *doc.Builder) error {
	if err := needSet(r); err != nil {
		return err
	}
	b.Open("config").String("_id", setName).Int32("version", 1).Int32("term", 1)
	b.OpenArray("members").Open("0").Int32("_id", 0).String("host", r.addr).Double("priority", 1).Int32("votes", 1).End().End()
	b.Open("settings").ObjectID("replicaSetId", r.set).End().End()
	return nil
}

func runCollStats(_ context.Context, r *request, b *doc.Builder) error {
	n, err := r.collection()
	if err != nil {
		return err
	}
	if isOplog(n) && !r.standalone {
		entries, bytes := r.oplog.Size()
		b.String("ns", n.String()).Number("size", bytes).Number("count", entries).Number("avgObjSize", bytes/entries)
		b.Number("storageSize", bytes).Bool("capped", true).Int32("max", -1).Number("maxSize", r.oplog.MaxBytes())
		b.Int32("nindexes", 0).Number("totalIndexSize", 0).Number("totalSize", bytes).Int32("scaleFactor", 1)
		return nil
	}
	c, _ := r.store.Collection(n)
	b.String("ns", n.String()).Number("size", c.Bytes).Number("count", c.Count)
	if c.Count > 0 {
		b.Number("avgObjSize", c.Bytes/c.Count)
	}
	b.Number("storageSize", c.Bytes).Bool("capped", false).Int32("nindexes", int32(len(c.Indexes)))
	b.Number("totalIndexSize", 0).Number("totalSize", c.Bytes).Int32("scaleFactor", 1)
	return nil
}
