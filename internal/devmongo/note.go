package devmongo

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// runAppendOplogNote writes an entry that changes nothing: a router to the log of every shard. With maxClusterTime a log that is at that time
// already is left as it is. Routers know the command since 4.2.23, 4.4.17, 5.0.12 and 6.0.
func runAppendOplogNote(_ context.Context, r *request, b *doc.Builder) error {
	switch {
	case r.Mongos && !r.release.Since(oplog.R60):
		return wire.Errorf(wire.CommandNotFound, "no such cmd: %s", r.name)
	case r.db != "admin":
		return wire.Errorf(wire.Unauthorized, "%s may only be run against the admin database.", r.name)
	case r.standalone:
		return wire.Errorf(wire.NoReplicationEnabled, "Must have replication set up to run \"appendOplogNote\"")
	}
	var until uint64
	if v, ok := r.field("maxClusterTime"); ok {
		until = query.Timestamp(v)
	}
	data, err := r.document("data")
	if err == nil && data == nil {
		err = wire.Errorf(wire.NoSuchKey, "Missing expected field \"data\"")
	}
	if r.oplog.Shards() > 0 {
		return note(r, b, data, until, err)
	}
	switch {
	case err != nil:
		return err
	case until > 0 && r.oplog.Applied() >= until:
		return stale(until)
	}
	r.oplog.Note(data)
	return nil
}

func stale(until uint64) error {
	return wire.Errorf(wire.StaleClusterTime, "Requested maxClusterTime %d is less or equal to the last primary OpTime", until)
}

// note tells of each shard what it has answered, and fails where one has.
func note(r *request, b *doc.Builder, data bsoncore.Document, until uint64, refused error) error {
	raw := doc.New().Open("raw")
	failure := refused
	for shard := range r.oplog.Shards() {
		err := refused
		if err == nil && !r.oplog.NoteOn(shard, data, until) {
			err = stale(until)
		}
		raw.Open(fmt.Sprintf("sh%d/%s", shard, r.addr))
		if err == nil {
			raw.Double("ok", 1)
		} else {
			e := wire.ErrorOf(err)
			failure = e
			raw.Double("ok", 0).String("errmsg", e.Message).Int32("code", int32(e.Code)).String("codeName", e.Code.Name())
		}
		raw.End()
	}
	answers := raw.End().Bytes()
	if failure == nil {
		b.Raw(elements(answers))
		return nil
	}
	e := *wire.ErrorOf(failure)
	e.Extra = elements(answers)
	return &e
}
