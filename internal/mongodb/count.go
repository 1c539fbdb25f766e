package mongodb

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongostream/streamer/change"
)

const (
	// MaxCount is where CountEntries stops counting.
	MaxCount = 10_000_000
	// countTimeout bounds how long CountEntries lets the server count.
	countTimeout = 15 * time.Second
)

// CountEntries counts the oplog's entries after the time from, up to the time to, without no-ops; a
// transaction counts as one. The result estimates the number of changes and costs the server a scan
// of the span. If the oplog cannot be read, or counting takes too long, known is false. MaxCount
// means that many or more.
func (c *Client) CountEntries(ctx context.Context, from, to change.Timestamp) (n int64, known bool, err error) {
	if c.Blind() {
		return 0, false, nil
	}
	bounded, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	span := bson.D{
		{Key: "ts", Value: bson.D{{Key: "$gt", Value: bson.Timestamp{T: from.T, I: from.I}}, {Key: "$lte", Value: bson.Timestamp{T: to.T, I: to.I}}}},
		{Key: "op", Value: bson.D{{Key: "$ne", Value: "n"}}},
	}
	oplog := c.Driver().Database("local").Collection("oplog.rs", options.Collection().SetReadConcern(readconcern.Local()))
	n, err = oplog.CountDocuments(bounded, span, options.Count().SetLimit(MaxCount))
	switch server, ok := errors.AsType[mongo.ServerError](err); {
	case err == nil:
		return n, true, nil
	case ctx.Err() != nil:
		return 0, false, context.Cause(ctx)
	case bounded.Err() != nil, mongo.IsTimeout(err), ok && server.HasErrorCode(13):
		return 0, false, nil
	}
	return 0, false, AsFault(err)
}
