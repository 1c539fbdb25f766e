package mongodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Version returns the version of the server that answers.
func Version(ctx context.Context, c *Client) (string, error) {
	var info struct {
		Version string `bson:"version"`
	}
	if err := c.Driver().Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info); err != nil {
		return "", fmt.Errorf("ask for the version: %w", AsFault(err))
	}
	return info.Version, nil
}

// Clock returns the server's clock, and this machine's clock before and after it was read.
func Clock(ctx context.Context, c *Client) (server, sent, received time.Time, err error) {
	sent = time.Now()
	server, err = c.ServerTime(ctx)
	return server, sent, time.Now(), err
}

// Connections returns how many more connections the server accepts; known is false if the server
// does not report it to this user.
func Connections(ctx context.Context, c *Client) (available int, known bool, err error) {
	var status struct {
		Connections struct {
			Available *int `bson:"available"`
		} `bson:"connections"`
	}
	err = c.Driver().Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status)
	switch {
	case Denied(err):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("ask for the connections: %w", AsFault(err))
	case status.Connections.Available == nil:
		return 0, false, nil
	}
	return *status.Connections.Available, true, nil
}

// OplogSize returns the oplog's size and its maximum, in bytes; known is false if the user may not
// read them.
func OplogSize(ctx context.Context, c *Client) (size, most int64, known bool, err error) {
	if c.Blind() {
		return 0, 0, false, nil
	}
	var stats struct {
		Size    float64 `bson:"size"`
		MaxSize float64 `bson:"maxSize"`
	}
	err = c.Driver().Database("local").RunCommand(ctx, bson.D{{Key: "collStats", Value: "oplog.rs"}}).Decode(&stats)
	switch {
	case Denied(err):
		return 0, 0, false, nil
	case err != nil:
		return 0, 0, false, fmt.Errorf("ask for the size of the oplog: %w", AsFault(err))
	}
	return int64(stats.Size), int64(stats.MaxSize), stats.MaxSize > 0, nil
}

const (
	// full is from which part of its size on an oplog counts as full. MongoDB removes a tenth of it
	// at once at most.
	full = 0.85
	// growingFor is how long an answer to whether the oplog grows is believed, growingMost how long
	// it is while there is no other one.
	growingFor, growingMost = 4 * time.Second, time.Minute
)

// growth is what was last heard of the growth of the oplog.
type growth struct {
	asked, heard time.Time
	growing      bool
}

// next returns the growth after an answer, or after a question without one.
func (last growth) next(now time.Time, growing, answered bool) growth {
	switch {
	case answered:
		return growth{now, now, growing}
	case now.Sub(last.heard) < growingMost:
		return growth{now, last.heard, last.growing}
	}
	return growth{asked: now}
}

// Growing reports whether the oplog has not reached its size yet, so that nothing leaves it. It
// asks at most every four seconds, and believes the last answer for a minute while it gets no
// other. If the size is unknown, through mongos or without the right to collStats, the oplog counts
// as full, and positions near its start are reported.
func (c *Client) Growing(ctx context.Context) bool {
	var last growth
	if known := c.growth.Load(); known != nil {
		last = *known
	}
	if time.Since(last.asked) < growingFor {
		return last.growing
	}
	size, most, known, err := OplogSize(ctx, c)
	next := last.next(time.Now(), known && float64(size) < full*float64(most), err == nil)
	c.growth.Store(&next)
	return next.growing
}

// WithoutImages returns the collections among the watched namespaces (db.coll or db.*; none: all)
// that keep no pre- and post-images.
func WithoutImages(ctx context.Context, c *Client, watched []string, exclude string) (missing []string, err error) {
	databases := map[string]map[string]bool{} // by database: the watched collections, nil for all
	for _, ns := range watched {
		db, coll, _ := strings.Cut(ns, ".")
		if collections, known := databases[db]; coll == "*" || known && collections == nil {
			databases[db] = nil
		} else {
			if !known {
				databases[db] = map[string]bool{}
			}
			databases[db][coll] = true
		}
	}
	if len(watched) == 0 {
		names, err := c.Driver().ListDatabaseNames(ctx, bson.D{})
		if err != nil {
			return nil, fmt.Errorf("list the databases: %w", AsFault(err))
		}
		for _, name := range names {
			if !slices.Contains([]string{"admin", "config", "local", exclude}, name) {
				databases[name] = nil
			}
		}
	}
	for db, collections := range databases {
		specs, err := c.Driver().Database(db).ListCollectionSpecifications(ctx, bson.D{{Key: "type", Value: "collection"}})
		if err != nil {
			return nil, fmt.Errorf("list the collections of %s: %w", db, AsFault(err))
		}
		for _, spec := range specs {
			if strings.HasPrefix(spec.Name, "system.") || collections != nil && !collections[spec.Name] {
				continue
			}
			if enabled, ok := spec.Options.Lookup("changeStreamPreAndPostImages", "enabled").BooleanOK(); !ok || !enabled {
				missing = append(missing, db+"."+spec.Name)
			}
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// MayWrite checks whether the user may write into a collection, with an update that matches
// nothing.
func MayWrite(ctx context.Context, c *Client, database, collection string) error {
	_, err := c.Driver().Database(database).Collection(collection).UpdateOne(ctx,
		bson.D{{Key: "_id", Value: "preflight: nothing has this id"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "preflight", Value: true}}}})
	if err != nil {
		return fmt.Errorf("try to write into %s.%s: %w", database, collection, AsFault(err))
	}
	return nil
}

// Streams lists features of change streams.
type Streams struct {
	// Progress says that an empty reply carries a post-batch resume token.
	Progress bool
	// StartAfter says that a stream can start after such a token.
	StartAfter bool
	// Split says that large events come in fragments.
	Split bool
}

// codeUnknownStage is the server's error code for an unknown pipeline stage.
const codeUnknownStage = 40324

// TryStreams opens and closes change streams on the deployment, or on a database if one is given
// because the user may not watch the whole deployment.
func TryStreams(ctx context.Context, c *Client, database string) (can Streams, err error) {
	open := func(pipeline mongo.Pipeline, opts *options.ChangeStreamOptionsBuilder) (token bson.Raw, err error) {
		var cursor *mongo.ChangeStream
		if opts.SetBatchSize(0); database != "" {
			cursor, err = c.Driver().Database(database).Watch(ctx, pipeline, opts)
		} else {
			cursor, err = c.Driver().Watch(ctx, pipeline, opts)
		}
		if err != nil {
			return nil, err
		}
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
		defer cancel()
		_ = cursor.Close(closing) // a server that does not answer drops the cursor after its own timeout
		return cursor.ResumeToken(), nil
	}
	refused := func(err error) bool {
		_, answered := errors.AsType[mongo.ServerError](err)
		return answered && !Denied(err) && !Passes(err)
	}
	token, err := open(mongo.Pipeline{}, options.ChangeStream())
	if err != nil {
		return can, fmt.Errorf("try a change stream: %w", AsFault(err))
	}
	if can.Progress = token != nil; can.Progress {
		if _, err = open(mongo.Pipeline{}, options.ChangeStream().SetStartAfter(token)); err != nil && !refused(err) {
			return can, fmt.Errorf("try to start behind a token: %w", AsFault(err))
		}
		can.StartAfter = err == nil
	}
	_, err = open(mongo.Pipeline{bson.D{{Key: "$changeStreamSplitLargeEvent", Value: bson.D{}}}}, options.ChangeStream())
	if server, ok := errors.AsType[mongo.ServerError](err); ok && server.HasErrorCode(codeUnknownStage) {
		return can, nil
	}
	if err != nil {
		return can, fmt.Errorf("try to have events split: %w", AsFault(err))
	}
	can.Split = true
	return can, nil
}
