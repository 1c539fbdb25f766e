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

// A ClusterTime is the newest time of any shard that a server knew when it replied. A server
// accepts it from a client only with the deployment's own signature.
type ClusterTime struct {
	change.Timestamp

	signed bson.Raw // {$clusterTime: …}, nil if it does not come from a server
}

// ClusterTimeOf returns the cluster's time in a reply, zero if the reply has none.
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

// at calls f with a session that sends the cluster's time with every request.
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

// An Advance is the result of AdvanceShards.
type Advance struct {
	// At is the cluster's time afterwards, zero if it is unknown.
	At ClusterTime
	// Moved are the shards whose oplogs had not reached the time and got a no-op, Ahead those whose
	// oplogs were past the time. The names are those of the shards' replica sets.
	Moved, Ahead []string
}

// Codes of MongoDB's answers to AdvanceShards.
const (
	codeUnknownCommand = 59  // CommandNotFound
	codeUnsupported    = 115 // CommandNotSupported
	codeStaleTime      = 209 // StaleClusterTime: the oplog is past the time already
)

// AdvanceShards makes every shard that is not past the time write a no-op to its oplog, so that
// mongos releases the changes that it holds because of them. With the zero time it writes nothing
// and only checks whether it could.
//
// The error is the fault MongoShards if mongos does not know the command (appendOplogNote: 4.2.23,
// 4.4.17, 5.0.12, 6.0), or if the user lacks the right to it. AdvanceShards blocks on the network
// until the context ends.
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
	isUnknown := refused && (failed.HasErrorCode(codeUnknownCommand) || failed.HasErrorCode(codeUnsupported))
	switch {
	case err == nil, refused && failed.HasErrorCode(codeStaleTime):
		return a, nil
	case isUnknown, refused && Denied(err):
		return a, fault.Newf(fault.MongoShards, "appendOplogNote: %w", err)
	}
	return a, fmt.Errorf("write a no-op to every shard: %w", AsFault(err))
}

// longAgo is a time that every oplog has passed.
func longAgo() change.Timestamp { return change.Timestamp{T: 1, I: 1} }

// answers sorts the shards by their answers.
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

// AdvanceConfig makes the config servers write a no-op to their oplog if it has not reached the
// time, by a read after that time. With the zero time it writes nothing and only checks whether it
// could. The error is the fault MongoUnauthorized if the user may not read config.version.
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
