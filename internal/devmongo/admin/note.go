package admin

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/node"
	"github.com/mongostream/streamer/internal/devmongo/profile"
	"github.com/mongostream/streamer/internal/devmongo/query"
)

// runAppendOplogNote writes an entry that changes nothing: a router to the log of every shard. With maxClusterTime a log that is at that time
// already is left as it is. Routers know the command since 4.2.23, 4.4.17, 5.0.12 and 6.0.
func runAppendOplogNote(_ context.Context, r *node.Request, b *doc.Builder) error {
	switch {
	case r.Mongos && !r.Release.Since(profile.R60):
		return fault.New(fault.CommandNotFound, "no such cmd: %s", r.Name)
	case r.DB != "admin":
		return fault.New(fault.Unauthorized, "%s may only be run against the admin database.", r.Name)
	case r.Standalone:
		return fault.New(fault.NoReplicationEnabled, "Must have replication set up to run \"appendOplogNote\"")
	}
	var until uint64
	if v, ok := r.Field("maxClusterTime"); ok {
		until = query.Timestamp(v)
	}
	data, err := r.Document("data")
	if err == nil && data == nil {
		err = fault.New(fault.NoSuchKey, "Missing expected field \"data\"")
	}
	if r.Oplog.Shards() > 0 {
		return note(r, b, data, until, err)
	}
	switch {
	case err != nil:
		return err
	case until > 0 && r.Oplog.Applied() >= until:
		return stale(until)
	}
	r.Oplog.Note(data)
	return nil
}

func stale(until uint64) error {
	return fault.New(fault.StaleClusterTime, "Requested maxClusterTime %d is less or equal to the last primary OpTime", until)
}

// note tells of each shard what it has answered, and fails where one has.
func note(r *node.Request, b *doc.Builder, data bsoncore.Document, until uint64, refused error) error {
	raw := doc.New().Open("raw")
	failure := refused
	for shard := range r.Oplog.Shards() {
		err := refused
		if err == nil && !r.Oplog.NoteOn(shard, data, until) {
			err = stale(until)
		}
		raw.Open(fmt.Sprintf("sh%d/%s", shard, r.Addr))
		if err == nil {
			raw.Double("ok", 1)
		} else {
			e := fault.From(err)
			failure = e
			raw.Double("ok", 0).String("errmsg", e.Message).Int32("code", int32(e.Code)).String("codeName", e.Code.Name())
		}
		raw.End()
	}
	answers := raw.End().Bytes()
	if failure == nil {
		b.Raw(node.Elements(answers))
		return nil
	}
	e := *fault.From(failure)
	e.Extra = node.Elements(answers)
	return &e
}
