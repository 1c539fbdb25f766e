package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/mongodb"
)

// ownerID is the _id of the owner's document.
const ownerID = "owner"

// A Registry stores in MongoDB which process owns all partitions. It is the registry of a single
// node without etcd. One document holds the owner, its epoch and a timestamp of the server's clock
// that each renewal sets. A claim expires when its timestamp is older than its TTL by the same
// clock.
type Registry struct {
	store *Store

	mu struct {
		sync.Mutex
		claim *claim // the current one; it is replaced, never changed
	}
}

var _ cluster.Registry = (*Registry)(nil)

// NewRegistry makes a registry in the database of a checkpoint store.
func NewRegistry(s *Store) *Registry { return &Registry{store: s} }

type ownerDocument struct {
	Node        string `bson:"node"`
	Process     string `bson:"process"`
	Incarnation int64  `bson:"incarnation"`
	// Claim is the revision of the claim itself, Revision the highest that it has given to a
	// partition.
	Claim    int64     `bson:"claim"`
	Revision int64     `bson:"revision"`
	TTL      int64     `bson:"ttl_ms"`
	Stamp    time.Time `bson:"stamp"`
}

func (d *ownerDocument) ttl() time.Duration { return time.Duration(d.TTL) * time.Millisecond }

// identity is the filter that finds this claim, also after renewals and reclaims.
func (d *ownerDocument) identity() bson.D {
	return bson.D{{Key: "_id", Value: ownerID}, {Key: "process", Value: d.Process}, {Key: "incarnation", Value: d.Incarnation}, {Key: "claim", Value: d.Claim}}
}

// toNobody is the update that removes the process from a document.
func toNobody() bson.D { return bson.D{{Key: "$set", Value: bson.D{{Key: "process", Value: ""}}}} }

// A claim is the current claim of this process.
type claim struct {
	ownerDocument

	again map[change.Partition]int64 // the revisions of reclaimed partitions
}

// revision returns the revision of a partition's epoch.
func (c *claim) revision(p change.Partition) int64 {
	if again, ok := c.again[p]; ok {
		return again
	}
	return c.Claim
}

// Claim implements cluster.Registry. All partitions get one epoch, above those in the documents.
// Claim returns a *cluster.HeldError if nodes share the partitions; a takeover ends the sharing
// instead.
func (o *Registry) Claim(ctx context.Context, m cluster.Identity, n int, ttl time.Duration, takeOver bool) ([]change.Epoch, error) {
	if !takeOver {
		if err := o.shared(ctx); err != nil {
			return nil, err
		}
	}
	epochs, err := o.ClaimAnyway(ctx, m, n, ttl, takeOver)
	switch {
	case err != nil:
		return nil, err
	case takeOver:
		err = o.Unshare(ctx)
	default:
		err = o.shared(ctx) // nodes may have started to share them meanwhile
	}
	if err != nil {
		return nil, errors.Join(err, o.Release(context.WithoutCancel(ctx)))
	}
	return epochs, nil
}

// ClaimAnyway is Claim for a caller that makes sure that no node that shares the partitions is
// running. The record of the sharing stays.
func (o *Registry) ClaimAnyway(ctx context.Context, m cluster.Identity, n int, ttl time.Duration, takeOver bool) ([]change.Epoch, error) {
	origin, err := o.store.Origin(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return nil, fmt.Errorf("%w: %w", cluster.ErrLost, err)
	}
	if err != nil {
		return nil, err
	}
	now, err := o.store.client.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	before, err := o.owner(ctx)
	if err != nil {
		return nil, err
	}
	isHeld := before != nil && before.Process != m.Process && before.lives(now)
	if isHeld && !takeOver {
		return nil, &cluster.HeldError{Node: before.Node, Process: before.Process, TTL: before.ttl()}
	}
	next := &ownerDocument{Node: m.Node, Process: m.Process, Incarnation: int64(origin.Incarnation), TTL: ttl.Milliseconds()}
	if next.Revision, err = o.store.Highest(ctx, next.Incarnation); err != nil {
		return nil, err
	}
	if before != nil && before.Incarnation == next.Incarnation {
		next.Revision = max(next.Revision, before.Revision)
	}
	next.Revision++
	next.Claim = next.Revision
	if err := o.replace(ctx, before, next, takeOver); err != nil {
		return nil, err
	}
	o.setClaim(&claim{ownerDocument: *next})
	return next.epochs(n), nil
}

// epochs returns the epochs of n partitions.
func (d *ownerDocument) epochs(n int) []change.Epoch {
	return slices.Repeat([]change.Epoch{{Incarnation: uint64(d.Incarnation), Revision: uint64(d.Revision)}}, n)
}

// owner reads the owner's document, nil if there is none.
func (o *Registry) owner(ctx context.Context) (*ownerDocument, error) {
	var d ownerDocument
	err := o.store.cluster.FindOne(ctx, bson.D{{Key: "_id", Value: ownerID}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil //nolint:nilnil // no owner is not an error
	}
	if err != nil {
		return nil, fmt.Errorf("read owner: %w", mongodb.AsFault(err))
	}
	return &d, nil
}

// replace replaces the claim that was read with another one. If the owner has renewed it meanwhile,
// or another claimant has replaced it, that process holds the claim; with force a renewal does not
// count.
func (o *Registry) replace(ctx context.Context, before, claim *ownerDocument, force bool) error {
	set := bson.D{
		{Key: "$set", Value: bson.D{
			{Key: "node", Value: claim.Node}, {Key: "process", Value: claim.Process}, {Key: "incarnation", Value: claim.Incarnation},
			{Key: "claim", Value: claim.Claim}, {Key: "revision", Value: claim.Revision}, {Key: "ttl_ms", Value: claim.TTL},
		}},
		{Key: "$currentDate", Value: bson.D{{Key: "stamp", Value: true}}},
	}
	if before == nil {
		if _, err := o.store.cluster.InsertOne(ctx, bson.D{{Key: "_id", Value: ownerID}, {Key: "process", Value: ""}}); err != nil && !mongo.IsDuplicateKeyError(err) {
			return fmt.Errorf("claim partitions: %w", mongodb.AsFault(err))
		}
		before = &ownerDocument{}
	}
	filter := bson.D{{Key: "_id", Value: ownerID}, {Key: "process", Value: before.Process}}
	if before.Revision > 0 {
		// A partition that the owner reclaims meanwhile must not get the epoch of this claim.
		if filter = append(before.identity(), bson.E{Key: "revision", Value: before.Revision}); !force {
			filter = append(filter, bson.E{Key: "stamp", Value: before.Stamp})
		}
	}
	result, err := o.store.cluster.UpdateOne(ctx, filter, set)
	if err == nil && result.MatchedCount == 1 {
		return nil
	}
	// Not matched, or the reply was lost: the document shows which.
	stands, readErr := o.owner(ctx)
	switch {
	case readErr != nil:
		return errors.Join(err, readErr)
	case stands != nil && stands.Process == claim.Process && stands.Revision == claim.Revision:
		return nil
	case err != nil:
		return fmt.Errorf("claim partitions: %w", mongodb.AsFault(err))
	}
	return &cluster.HeldError{Node: stands.Node, Process: stands.Process, TTL: stands.ttl()}
}

// Renew implements cluster.Registry.
func (o *Registry) Renew(ctx context.Context) (ttl time.Duration, taken []change.Partition, err error) {
	claim := o.claim()
	if claim == nil {
		return 0, nil, cluster.ErrLost
	}
	result, err := o.store.cluster.UpdateOne(ctx, claim.identity(), bson.D{{Key: "$currentDate", Value: bson.D{{Key: "stamp", Value: true}}}})
	if err != nil {
		return 0, nil, fmt.Errorf("renew claim: %w", mongodb.AsFault(err))
	}
	if result.MatchedCount == 0 {
		return 0, nil, cluster.ErrLost
	}
	taken, err = o.missing(ctx, claim)
	if errors.Is(err, cluster.ErrLost) {
		return 0, nil, err
	}
	// The claim is valid even if the documents could not be read; the next renewal reads them
	// again.
	return claim.ttl(), taken, nil
}

// missing returns the partitions whose document has a higher epoch than the claim gave them. It
// returns ErrLost if an operator has adopted the checkpoints, which ends all earlier claims.
func (o *Registry) missing(ctx context.Context, claim *claim) ([]change.Partition, error) {
	if err := o.adopted(ctx, claim); err != nil {
		return nil, err
	}
	higher := bson.D{
		{Key: epochField + ".incarnation", Value: claim.Incarnation}, {Key: epochField + ".revision", Value: bson.D{{Key: "$gt", Value: claim.Claim}}},
	}
	cursor, err := o.store.checkpoints.Find(ctx, higher, options.Find().SetProjection(bson.D{{Key: epochField, Value: 1}}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	taken := make(map[change.Partition]struct{})
	for cursor.Next(ctx) {
		if d, err := o.store.decode(cursor.Current); err == nil && int64(d.epoch.Revision) > claim.revision(d.key.Partition) {
			taken[d.key.Partition] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(taken)), cursor.Err()
}

// adopted returns ErrLost if the origin has another incarnation than the claim.
func (o *Registry) adopted(ctx context.Context, claim *claim) error {
	origin, err := o.store.Origin(ctx)
	if err == nil && int64(origin.Incarnation) != claim.Incarnation {
		return fmt.Errorf("an operator has adopted the checkpoints: %w", cluster.ErrLost)
	}
	return err
}

// Highest returns the highest revision in the documents of an incarnation, 0 if there are none.
func (s *Store) Highest(ctx context.Context, incarnation int64) (int64, error) {
	sorted := options.FindOne().SetSort(bson.D{{Key: epochField + ".revision", Value: -1}}).SetProjection(bson.D{{Key: epochField, Value: 1}})
	raw, err := s.checkpoints.FindOne(ctx, bson.D{{Key: epochField + ".incarnation", Value: incarnation}}, sorted).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read epochs: %w", mongodb.AsFault(err))
	}
	revision, _ := raw.Lookup(epochField, "revision").AsInt64OK()
	return revision, nil
}

// Reclaim implements cluster.Registry: the partitions get one epoch, above every other.
func (o *Registry) Reclaim(ctx context.Context, partitions []change.Partition) ([]change.Epoch, error) {
	stands := o.claim()
	if stands == nil {
		return nil, cluster.ErrLost
	}
	if err := o.adopted(ctx, stands); err != nil {
		return nil, err
	}
	highest, err := o.store.Highest(ctx, stands.Incarnation)
	if err != nil {
		return nil, err
	}
	next := &claim{ownerDocument: stands.ownerDocument, again: maps.Clone(stands.again)}
	next.Revision = max(highest, stands.Revision) + 1
	// If the reply is lost, the next attempt writes the same value; no other process writes under
	// this claim.
	result, err := o.store.cluster.UpdateOne(ctx, stands.identity(), bson.D{{Key: "$max", Value: bson.D{{Key: "revision", Value: next.Revision}}}})
	if err != nil {
		return nil, fmt.Errorf("claim partitions again: %w", mongodb.AsFault(err))
	}
	if result.MatchedCount == 0 {
		return nil, cluster.ErrLost
	}
	if next.again == nil {
		next.again = make(map[change.Partition]int64)
	}
	for _, p := range partitions {
		next.again[p] = next.Revision
	}
	o.setClaim(next)
	return next.epochs(len(partitions)), nil
}

// Release implements cluster.Registry: it removes the owner from the document, which keeps the
// revision for the next claim.
func (o *Registry) Release(ctx context.Context) error {
	claim := o.claim()
	if claim == nil {
		return nil
	}
	_, err := o.store.cluster.UpdateOne(ctx, claim.identity(), toNobody())
	if err != nil {
		return fmt.Errorf("release claim: %w", mongodb.AsFault(err))
	}
	o.setClaim(nil)
	return nil
}

func (o *Registry) claim() *claim {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.claim
}

func (o *Registry) setClaim(c *claim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.claim = c
}
