package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

// maxAwait is how long MongoDB waits for changes, for all contenders. It is not a delay; a node
// only stops sooner.
const maxAwait = 100 * time.Millisecond

// A connection is a driver's client.
type connection struct{ client *mongo.Client }

func (c *connection) connect(ctx context.Context, uri string) (err error) {
	if c.client, err = mongo.Connect(options.Client().ApplyURI(uri).SetReadConcern(readconcern.Majority())); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := c.client.Ping(ctx, nil); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// Close implements Contender.
func (c *connection) Close() error {
	if c.client == nil {
		return nil
	}
	if err := c.client.Disconnect(context.Background()); err != nil {
		return fmt.Errorf("disconnect: %w", err)
	}
	return nil
}

// scope returns the node's own filter for a database, so that MongoDB does the same work for all
// contenders.
func scope(db string) bson.D {
	in := bson.D{{Key: "$in", Value: bson.A{db}}}
	return bson.D{{Key: "$match", Value: bson.D{{Key: "$and", Value: bson.A{
		bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "ns.db", Value: in}},
			bson.D{{Key: "to.db", Value: in}},
			bson.D{{Key: "operationType", Value: "dropDatabase"}, {Key: "ns.db", Value: in}},
			bson.D{{Key: "operationType", Value: "invalidate"}},
		}}},
		bson.D{{Key: "ns.db", Value: bson.D{{Key: "$ne", Value: "streamer"}}}},
	}}}}}
}

// startTime returns the operation time to begin at, nil for now.
func (j scenario) startTime() *bson.Timestamp {
	if j.Start == 0 {
		return nil
	}
	return &bson.Timestamp{T: uint32(j.Start), I: 1}
}

// raw requests replies and discards them, after it has read the numbers for the check.
type raw struct {
	connection

	round   *round
	session *mongo.Session
	id      int64
}

// Open implements Contender.
func (r *raw) Open(ctx context.Context, round *round) (err error) {
	r.round = round
	if err := r.connect(ctx, round.URI); err != nil {
		return err
	}
	// A cursor belongs to the session that opened it.
	if r.session, err = r.client.StartSession(); err != nil {
		return fmt.Errorf("start a session: %w", err)
	}
	stage := bson.D{{Key: "allChangesForCluster", Value: true}}
	if at := round.startTime(); at != nil {
		stage = append(stage, bson.E{Key: "startAtOperationTime", Value: *at})
	}
	round.begin()
	reply, err := r.command(ctx, bson.D{
		{Key: "aggregate", Value: 1},
		{Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: stage}}, scope(round.DB)}},
		{Key: "cursor", Value: bson.D{{Key: "batchSize", Value: 0}}},
	})
	if err != nil {
		return err
	}
	r.id = reply.Lookup("cursor", "id").Int64()
	return nil
}

func (r *raw) command(ctx context.Context, command bson.D) (bson.Raw, error) {
	reply, err := r.client.Database("admin").RunCommand(mongo.NewSessionContext(ctx, r.session), command).Raw()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command[0].Key, err)
	}
	return reply, nil
}

// Read implements Contender.
func (r *raw) Read(ctx context.Context) error {
	more := bson.D{
		{Key: "getMore", Value: r.id}, {Key: "collection", Value: "$cmd.aggregate"}, {Key: "maxTimeMS", Value: maxAwait.Milliseconds()},
	}
	for check := r.round.check; !check.done(); {
		reply, err := r.command(ctx, more)
		if err != nil {
			return err
		}
		now := time.Now()
		batch, ok := reply.Lookup("cursor", "nextBatch").ArrayOK()
		if !ok {
			return errors.New("a reply without a batch")
		}
		r.round.bytes += len(batch)
		for event := range elements(batch) {
			if check.done() {
				break
			}
			check.event(event, now)
		}
	}
	return nil
}

// Close implements Contender.
func (r *raw) Close() error {
	if r.session != nil {
		r.session.EndSession(context.Background())
	}
	return r.connection.Close()
}

// elements yields the documents of a BSON array by their lengths, without a look inside. It ends
// where the array is none.
func elements(array []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for at := 4; at < len(array) && array[at] != 0; {
			from := at + 1 + bytes.IndexByte(array[at+1:], 0) + 1
			if from+4 > len(array) {
				return
			}
			size := int(binary.LittleEndian.Uint32(array[from:]))
			if size < 5 || size > len(array)-from || !yield(array[from:from+size]) {
				return
			}
			at = from + size
		}
	}
}

// stream is a change stream of the driver.
type stream struct {
	connection

	decode bool // every event into a bson.M
	round  *round
	cursor *mongo.ChangeStream
}

// Open implements Contender.
func (s *stream) Open(ctx context.Context, round *round) (err error) {
	s.round = round
	if err := s.connect(ctx, round.URI); err != nil {
		return err
	}
	round.begin()
	s.cursor, err = s.watch(ctx)
	return err
}

func (s *stream) watch(ctx context.Context) (*mongo.ChangeStream, error) {
	cursor, err := s.client.Watch(ctx, mongo.Pipeline{scope(s.round.DB)}, s.round.options())
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return cursor, nil
}

func (r *round) options() *options.ChangeStreamOptionsBuilder {
	o := options.ChangeStream().SetMaxAwaitTime(maxAwait).SetBatchSize(0)
	if at := r.startTime(); at != nil {
		o.SetStartAtOperationTime(at)
	}
	return o
}

// Read implements Contender.
func (s *stream) Read(ctx context.Context) error {
	check := s.round.check
	if !s.decode {
		return follow(ctx, s.cursor, check)
	}
	for !check.done() && s.cursor.Next(ctx) {
		now := time.Now()
		var event bson.M
		if err := s.cursor.Decode(&event); err != nil {
			return fmt.Errorf("decode an event: %w", err)
		}
		fields := event["fullDocument"]
		if update, ok := event["updateDescription"].(bson.D); ok {
			fields = value(update, "updatedFields")
		}
		changed, _ := fields.(bson.D)
		key, _ := event["documentKey"].(bson.D)
		id, _ := value(key, "_id").(int64)
		seq, _ := value(changed, "seq").(int64)
		at, _ := value(changed, "at").(int64)
		check.change(id, seq, at, now)
	}
	return streamError(s.cursor)
}

func value(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// follow reads a change stream as it comes.
func follow(ctx context.Context, cursor *mongo.ChangeStream, check *deliveryCheck) error {
	var now time.Time
	for left := 0; !check.done() && cursor.Next(ctx); left-- {
		if left == 0 {
			now, left = time.Now(), cursor.RemainingBatchLength()+1 // all of a batch arrives at once
		}
		check.event(cursor.Current, now)
	}
	return streamError(cursor)
}

func streamError(cursor *mongo.ChangeStream) error {
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read a change stream: %w", err)
	}
	return nil
}

var _, _ contender = (*raw)(nil), (*stream)(nil)
