package mongodb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// Sharded reports whether the deployment is a sharded cluster, reached through mongos.
func (c *Client) Sharded() bool { return c.sharded }

// A ClusterTime is the newest time of any shard that a server had heard of when it replied. Servers
// believe it of a client only with their own signature.
type ClusterTime struct {
	change.Timestamp

	signed bson.Raw // {$clusterTime: …}, nil where no server has told it
}

// ClusterTimeOf returns the cluster's time that a reply tells, the zero one where it tells none.
func ClusterTimeOf(reply bson.Raw) (at ClusterTime) {
	told, ok := reply.Lookup("$clusterTime").DocumentOK()
	if !ok {
		return at
	}
	t, i, ok := told.Lookup("clusterTime").TimestampOK()
	signed, err := bson.Marshal(bson.D{{Key: "$clusterTime", Value: told}})
	if !ok || err != nil {
		return at
	}
	return ClusterTime{change.Timestamp{T: t, I: i}, signed}
}

// at calls f with a session that makes every server that is asked believe the time.
func (c *Client) at(ctx context.Context, at ClusterTime, f func(context.Context, *mongo.Session) error) error {
	return c.Driver().UseSession(ctx, func(ctx context.Context) error {
		session := mongo.SessionFromContext(ctx)
		if at.signed != nil {
			if err := session.AdvanceClusterTime(at.signed); err != nil {
				return fmt.Errorf("tell the cluster's time: %w", err)
			}
		}
		return f(ctx, session)
	})
}

// An Advance is what became of the logs of a cluster's shards that were to be moved on.
type Advance struct {
	// At is the cluster's time afterwards, zero where it is not known.
	At ClusterTime
	// Moved are the shards whose logs were behind and have got a no-op, Ahead those whose logs were
	// past the time. The names are those of the shards' replica sets.
	Moved, Ahead []string
}

// Codes of MongoDB's errors that say how an Advance was received.
const (
	codeUnknownCommand = 59  // CommandNotFound
	codeUnsupported    = 115 // CommandNotSupported
	codeStaleTime      = 209 // StaleClusterTime: the log is past the time already
)

// AdvanceShards has a no-op written to the log of every shard that is not past the time, so that
// mongos hands out what it holds for them. With the zero time nothing is written, and it is only
// found out whether that could be.
//
// The error is the fault MongoShards where mongos does not know the command (appendOplogNote:
// 4.2.23, 4.4.17, 5.0.12, 6.0), or the user lacks the right to it. It blocks on the network until
// the context ends.
func (c *Client) AdvanceShards(ctx context.Context, past ClusterTime) (a Advance, err error) {
	least := past.Next()
	if past.IsZero() {
		least = longAgo()
	}
	var reply bson.Raw
	err = c.at(ctx, past, func(ctx context.Context, _ *mongo.Session) (err error) {
		reply, err = c.Driver().Database("admin").RunCommand(ctx, bson.D{
			{Key: "appendOplogNote", Value: 1}, {Key: "maxClusterTime", Value: bson.Timestamp{T: least.T, I: least.I}},
			{Key: "data", Value: bson.D{{Key: "msg", Value: "streamer: tick"}}}, {Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
		}).Raw()
		return err
	})
	failed, refused := errors.AsType[mongo.CommandError](err)
	if refused {
		reply = failed.Raw
	}
	a.At = ClusterTimeOf(reply)
	a.answers(reply)
	switch {
	case err == nil, refused && failed.HasErrorCode(codeStaleTime):
		return a, nil
	case refused && (failed.HasErrorCode(codeUnknownCommand) || failed.HasErrorCode(codeUnsupported) || Denied(err)):
		return a, fault.Newf(fault.MongoShards, "appendOplogNote: %w", err)
	}
	return a, fmt.Errorf("write a no-op to every shard: %w", AsFault(err))
}

// longAgo is a time that every log is past.
func longAgo() change.Timestamp { return change.Timestamp{T: 1, I: 1} }

// answers sorts what each shard has answered.
func (a *Advance) answers(reply bson.Raw) {
	raw, ok := reply.Lookup("raw").DocumentOK()
	if !ok {
		return
	}
	elements, _ := raw.Elements()
	for _, e := range elements {
		answer, ok := e.Value().DocumentOK()
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(e.Key(), "/") // of set/host:port,…
		code, _ := answer.Lookup("code").AsInt64OK()
		done, _ := answer.Lookup("ok").AsInt64OK()
		switch {
		case code == codeStaleTime:
			a.Ahead = append(a.Ahead, name)
		case done == 1:
			a.Moved = append(a.Moved, name)
		}
	}
}

// AdvanceConfig has a no-op written to the log of the config servers if it is not at the time: they
// are asked for what they have after it. With the zero time nothing is written, and it is only
// found out whether that could be. The error is the fault MongoUnauthorized where the user may not
// read config.version.
func (c *Client) AdvanceConfig(ctx context.Context, to ClusterTime) error {
	after := to.Timestamp
	if after.IsZero() {
		after = longAgo()
	}
	err := c.at(ctx, to, func(ctx context.Context, session *mongo.Session) error {
		if err := session.AdvanceOperationTime(&bson.Timestamp{T: after.T, I: after.I}); err != nil {
			return fmt.Errorf("ask for what is after %s: %w", after, err)
		}
		err := c.Driver().Database("config").Collection("version").FindOne(ctx, bson.D{}).Err()
		if errors.Is(err, mongo.ErrNoDocuments) {
			return nil
		}
		return AsFault(err)
	})
	if err != nil {
		return fmt.Errorf("read from the config servers: %w", err)
	}
	return nil
}
