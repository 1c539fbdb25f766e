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

// sharedID is the _id of the document that records that nodes share the partitions through etcd.
const sharedID = "shared"

type sharedDocument struct {
	Node    string `bson:"node"`    // the last node that has begun to share them
	Process string `bson:"process"` // empty if nodes do not share them
}

// Share records that a member shares the partitions with others through etcd. From then on no node
// can claim all of them except by a takeover, even after all members have ended, because they may
// come back. Share ends an expired claim. If a claim is still valid, it returns a
// *cluster.HeldError and changes nothing.
func (o *Registry) Share(ctx context.Context, m cluster.Identity) error {
	if err := o.Vacate(ctx); err != nil {
		return err
	}
	_, err := o.store.cluster.UpdateOne(ctx, bson.D{{Key: "_id", Value: sharedID}},
		bson.D{{Key: "$set", Value: sharedDocument{Node: m.Node, Process: m.Process}}}, options.UpdateOne().SetUpsert(true))
	if err != nil && !mongo.IsDuplicateKeyError(err) { // another member has just created it
		return fmt.Errorf("share partitions: %w", mongodb.AsFault(err))
	}
	// A claimant looks for this document after it has written its claim. So of two that act at
	// once, one sees the other.
	return o.MayShare(ctx, m)
}

// MayShare returns a *cluster.HeldError if a claim of all partitions is valid. In this case it also
// undoes the member's Share.
func (o *Registry) MayShare(ctx context.Context, m cluster.Identity) error {
	held := o.Vacate(ctx)
	if _, isHeld := errors.AsType[*cluster.HeldError](held); isHeld {
		return errors.Join(held, o.unshare(ctx, bson.E{Key: "process", Value: m.Process}))
	}
	return held
}

// Shared reports whether nodes share the partitions through etcd, or did until the last of them
// ended.
func (o *Registry) Shared(ctx context.Context) (bool, error) {
	err := o.shared(ctx)
	if _, are := errors.AsType[*cluster.HeldError](err); are {
		return true, nil
	}
	return false, err
}

// Vacate returns a *cluster.HeldError if a claim of all partitions is valid. It ends an expired
// claim, because its owner may only have been frozen.
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
		return held // it was renewed, or another process has claimed
	}
	return nil
}

// lives reports whether the claim is valid at a time of the server's clock.
func (d *ownerDocument) lives(now time.Time) bool {
	return d.Process != "" && now.Sub(d.Stamp) <= d.ttl()
}

// shared returns a *cluster.HeldError if nodes share the partitions.
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

// Unshare undoes Share for any member.
func (o *Registry) Unshare(ctx context.Context) error { return o.unshare(ctx) }

// unshare undoes Share, for any member or only for one process.
func (o *Registry) unshare(ctx context.Context, of ...bson.E) error {
	_, err := o.store.cluster.UpdateOne(ctx, append(bson.D{{Key: "_id", Value: sharedID}}, of...), toNobody())
	if err != nil {
		return fmt.Errorf("take over from who shares the partitions: %w", mongodb.AsFault(err))
	}
	return nil
}
