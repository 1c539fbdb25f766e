package admin

import (
	"context"
	"time"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/node"
	"github.com/mongostream/streamer/internal/devmongo/profile"
)

func runServerStatus(_ context.Context, r *node.Request, b *doc.Builder) error {
	up := time.Since(r.Started)
	text, _ := version(r.Release)
	st := r.Stats()
	b.String("host", r.Addr).String("version", text).String("process", "devmongo").Double("uptime", up.Seconds())
	b.Int64("uptimeMillis", up.Milliseconds()).Date("localTime", r.Oplog.Now().UnixMilli())
	b.Open("connections").Int32("current", int32(st.ConnectionsOpen)).Int32("totalCreated", int32(r.Counters.Connections.Load())).End()
	b.Open("logicalSessionRecordCache").Int32("activeSessionsCount", int32(r.Sessions.Count())).End()
	if !r.Standalone && !r.Mongos {
		if r.Truth("oplog") {
			first, _ := r.Oplog.First()
			b.Open("oplog").Timestamp("latestOptime", r.Oplog.Applied()).Timestamp("earliestOptime", first.TS).End()
		}
		b.Open("repl")
		primary := "ismaster"
		if r.Release.Since(profile.R60) {
			primary = "isWritablePrimary"
		}
		replication(r, b, primary)
		b.Int32("rbid", 1).End()
	}
	b.Open("storageEngine").String("name", "devmongo").Bool("supportsCommittedReads", true).Bool("persistent", r.Persistent).End()
	st.Append(b)
	return nil
}

func needSet(r *node.Request) error {
	if r.Mongos {
		return fault.New(0, "%s is not supported through mongos", r.Name)
	}
	if r.Standalone {
		return fault.New(76, "not running with --replSet")
	}
	return nil
}

func runReplSetGetStatus(_ context.Context, r *node.Request, b *doc.Builder) error {
	if err := needSet(r); err != nil {
		return err
	}
	now := r.Oplog.Now().UnixMilli()
	applied, committed := r.Oplog.Applied(), r.Oplog.Committed()
	b.String("set", node.SetName).Date("date", now).Int32("myState", 1).Int64("term", 1).String("syncSourceHost", "").Int32("syncSourceId", -1)
	b.Int64("heartbeatIntervalMillis", 2000).Int32("majorityVoteCount", 1).Int32("writeMajorityCount", 1)
	b.Int32("votingMembersCount", 1).Int32("writableVotingMembersCount", 1)
	b.Open("optimes")
	node.OpTime(b, "lastCommittedOpTime", committed)
	b.Date("lastCommittedWallTime", seconds(committed))
	node.OpTime(b, "readConcernMajorityOpTime", committed)
	b.Date("readConcernMajorityWallTime", seconds(committed))
	node.OpTime(b, "appliedOpTime", applied)
	node.OpTime(b, "durableOpTime", applied)
	b.Date("lastAppliedWallTime", seconds(applied)).Date("lastDurableWallTime", seconds(applied)).End()
	b.OpenArray("members").Open("0").Int32("_id", 0).String("name", r.Addr).Double("health", 1).Int32("state", 1)
	b.String("stateStr", "PRIMARY").Int32("uptime", int32(time.Since(r.Started).Seconds()))
	node.OpTime(b, "optime", applied)
	b.Date("optimeDate", seconds(applied)).String("syncSourceHost", "").Int32("syncSourceId", -1).String("infoMessage", "")
	b.Int32("configVersion", 1).Int32("configTerm", 1).Bool("self", true).String("lastHeartbeatMessage", "").End().End()
	return nil
}

func runReplSetGetConfig(_ context.Context, r *node.Request, b *doc.Builder) error {
	if err := needSet(r); err != nil {
		return err
	}
	b.Open("config").String("_id", node.SetName).Int32("version", 1).Int32("term", 1)
	b.OpenArray("members").Open("0").Int32("_id", 0).String("host", r.Addr).Double("priority", 1).Int32("votes", 1).End().End()
	b.Open("settings").ObjectID("replicaSetId", r.Set).End().End()
	return nil
}

func runCollStats(_ context.Context, r *node.Request, b *doc.Builder) error {
	n, err := r.Collection()
	if err != nil {
		return err
	}
	if node.IsOplog(n) && !r.Standalone {
		entries, bytes := r.Oplog.Size()
		b.String("ns", n.String()).Number("size", bytes).Number("count", entries).Number("avgObjSize", bytes/entries)
		b.Number("storageSize", bytes).Bool("capped", true).Int32("max", -1).Number("maxSize", r.Oplog.MaxBytes())
		b.Int32("nindexes", 0).Number("totalIndexSize", 0).Number("totalSize", bytes).Int32("scaleFactor", 1)
		return nil
	}
	c, _ := r.Store.Collection(n)
	b.String("ns", n.String()).Number("size", c.Bytes).Number("count", c.Count)
	if c.Count > 0 {
		b.Number("avgObjSize", c.Bytes/c.Count)
	}
	b.Number("storageSize", c.Bytes).Bool("capped", false).Int32("nindexes", int32(len(c.Indexes)))
	b.Number("totalIndexSize", 0).Number("totalSize", c.Bytes).Int32("scaleFactor", 1)
	return nil
}
