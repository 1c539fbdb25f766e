package devmongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

func runConfigureFailPoint(_ context.Context, r *request, b *doc.Builder) error {
	if r.db != "admin" {
		return wire.Errorf(wire.Unauthorized, "configureFailPoint may only be run against the admin database.")
	}
	count, err := r.points.configure(r.body)
	if err != nil {
		return err
	}
	b.Int32("count", int32(count))
	return nil
}

func runStartSession(_ context.Context, r *request, b *doc.Builder) error {
	id := store.NewUUID()
	lsid := doc.New().Binary("id", 4, id[:]).Document()
	if _, err := r.sessions.Get(bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: lsid}); err != nil {
		return err
	}
	b.Doc("id", lsid).Int32("timeoutMinutes", sessionMinutes)
	return nil
}

func runEndSessions(_ context.Context, r *request, _ *doc.Builder) error {
	if r.arg.Type != bsoncore.TypeArray {
		return wire.Errorf(wire.TypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'array'", r.name, doc.TypeName(r.arg.Type))
	}
	r.sessions.End(slices.Collect(doc.Values(r.arg.Data)))
	return nil
}

func runCommit(_ context.Context, r *request, _ *doc.Builder) error {
	if !r.inTxn {
		return wire.Errorf(125, "commitTransaction must be run within a transaction")
	}
	return r.session.Commit(r.number)
}

func runAbort(_ context.Context, r *request, _ *doc.Builder) error {
	if !r.inTxn {
		return wire.Errorf(125, "abortTransaction must be run within a transaction")
	}
	return r.session.Abort(r.number)
}
