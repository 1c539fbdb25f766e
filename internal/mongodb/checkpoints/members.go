package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/mongodb"
)

// sharedID is the _id of the document that says that nodes share the partitions, through etcd.
const sharedID = "shared"

type sharedDocument struct {
	Node    string `bson:"node"`    // who has begun to share them last
	Process string `bson:"process"` // empty when they do no longer
}

// Share says that a member shares the partitions with others, through etcd. From then on nobody
// claims all of them unless told to take over, not even when the members have ended: they may come
// back. A claim that has run out ends. Where one lives it is a *cluster.HeldError, and nothing is
// changed.
func (o *Registry) Share(ctx context.Context, m cluster.Identity) error {
	if err := o.Vacate(ctx); err != nil {
		return err
	}
	_, err := o.store.cluster.UpdateOne(ctx, bson.D{{Key: "_id", Value: sharedID}},
		bson.D{{Key: "$set", Value: sharedDocument{Node: m.Node, Process: m.Process}}}, options.UpdateOne().SetUpsert(true))
	if err != nil && !mongo.IsDuplicateKeyError(err) { // which another member was faster to make
		return fmt.Errorf("share partitions: %w", mongodb.AsFault(err))
	}
	// Who claims them looks for this document when the claim stands: of two at once, one sees the
	// other.
	return o.MayShare(ctx, m)
}

// MayShare returns a *cluster.HeldError where a claim of all partitions lives, and takes back what
// Share has said for the member then.
func (o *Registry) MayShare(ctx context.Context, m cluster.Identity) error {
	held := o.Vacate(ctx)
	if _, isHeld := errors.AsType[*cluster.HeldError](held); isHeld {
		return errors.Join(held, o.unshare(ctx, bson.E{Key: "process", Value: m.Process}))
	}
	return held
}

// Shared reports whether nodes share the partitions, through etcd, or did when the last of them
// ended.
func (o *Registry) Shared(ctx context.Context) (bool, error) {
	err := o.shared(ctx)
	if _, are := errors.AsType[*cluster.HeldError](err); are {
		return true, nil
	}
	return false, err
}

// Vacate returns a *cluster.HeldError where a claim of all partitions lives, and ends one that has
// run out: who made it may only have stood still.
func (o *Registry) Vacate(ctx context.Context) error {
	d, err := o.owner(ctx)
	if err != nil || d == nil || d.Process == "" {
		return err
	}
	now, err := o.store.client.ServerTime(ctx)
	if err != nil {
		return err
	}
	held := &cluster.HeldError{Node: d.Node, Process: d.Process, TTL: d.ttl()}
	if d.lives(now) {
		return held
	}
	result, err := o.store.cluster.UpdateOne(ctx, append(d.identity(), bson.E{Key: "stamp", Value: d.Stamp}), toNobody())
	if err != nil {
		return fmt.Errorf("end a claim that has run out: %w", mongodb.AsFault(err))
	}
	if result.MatchedCount == 0 {
		return held // it was renewed, or another one made
	}
	return nil
}

// lives reports whether somebody has the claim at a time of the server's.
func (d *ownerDocument) lives(now time.Time) bool {
	return d.Process != "" && now.Sub(d.Stamp) <= d.ttl()
}

// shared returns a *cluster.HeldError where nodes share the partitions.
func (o *Registry) shared(ctx context.Context) error {
	var d sharedDocument
	err := o.store.cluster.FindOne(ctx, bson.D{{Key: "_id", Value: sharedID}}).Decode(&d)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments), err == nil && d.Process == "":
		return nil
	case err != nil:
		return fmt.Errorf("read who shares the partitions: %w", mongodb.AsFault(err))
	}
	return &cluster.HeldError{Node: d.Node, Process: d.Process}
}

// Unshare takes back what Share has said, whoever it has said it for.
func (o *Registry) Unshare(ctx context.Context) error { return o.unshare(ctx) }

// unshare takes back what Share has said, or what it has said for a process.
func (o *Registry) unshare(ctx context.Context, of ...bson.E) error {
	_, err := o.store.cluster.UpdateOne(ctx, append(bson.D{{Key: "_id", Value: sharedID}}, of...), toNobody())
	if err != nil {
		return fmt.Errorf("take over from who shares the partitions: %w", mongodb.AsFault(err))
	}
	return nil
}
