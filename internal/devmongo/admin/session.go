package admin

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/identity"
	"github.com/mongostream/streamer/internal/devmongo/node"
)

func runConfigureFailPoint(_ context.Context, r *node.Request, b *doc.Builder) error {
	if r.DB != "admin" {
		return fault.New(fault.Unauthorized, "configureFailPoint may only be run against the admin database.")
	}
	count, err := r.Points.Configure(r.Body)
	if err != nil {
		return err
	}
	b.Int32("count", int32(count))
	return nil
}

func runStartSession(_ context.Context, r *node.Request, b *doc.Builder) error {
	id := identity.UUID()
	lsid := doc.New().Binary("id", 4, id[:]).Document()
	if _, err := r.Sessions.Get(bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: lsid}); err != nil {
		return err
	}
	b.Doc("id", lsid).Int32("timeoutMinutes", node.SessionMinutes)
	return nil
}

func runEndSessions(_ context.Context, r *node.Request, _ *doc.Builder) error {
	if r.Arg.Type != bsoncore.TypeArray {
		return fault.New(fault.TypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'array'", r.Name, doc.TypeName(r.Arg.Type))
	}
	r.Sessions.End(slices.Collect(doc.Values(r.Arg.Data)))
	return nil
}

func runCommit(_ context.Context, r *node.Request, _ *doc.Builder) error {
	if !r.InTxn {
		return fault.New(125, "commitTransaction must be run within a transaction")
	}
	return r.Session.Commit(r.Number)
}

func runAbort(_ context.Context, r *node.Request, _ *doc.Builder) error {
	if !r.InTxn {
		return fault.New(125, "abortTransaction must be run within a transaction")
	}
	return r.Session.Abort(r.Number)
}
