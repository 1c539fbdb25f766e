package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/oplog"
)

// Codes of servers that do not know a part of what a stream is opened with: a stage of the
// pipeline, an option of $changeStream.
const (
	codeUnknownStage  = 40324
	codeUnknownOption = 40415
)

// abilities are what streams are opened with, beside the watch: what the deployment can do and the
// user may do.
type abilities struct {
	split bool // large events come in fragments ($changeStreamSplitLargeEvent, since 6.0.9)
	// expanded asks for expanded events (showExpandedEvents, since 6.0): only in these an update
	// says what a field's name with a dot or of digits is (disambiguatedPaths, since 6.1).
	expanded bool
	database string // the database to watch, where the user may not watch the cluster
}

// Probe finds out what the deployment can do and the user may do, by opening and closing a stream;
// nobody's version is trusted. It must be called before Open. Its error says what a person must act
// upon, or that the deployment does not answer.
func (s *Source) Probe(ctx context.Context) error {
	s.can = abilities{split: true, expanded: true}
	database, one := s.cfg.Watch.database()
	for {
		err := s.try(ctx)
		server, _ := errors.AsType[mongo.ServerError](err)
		switch {
		case err == nil:
			if s.can.database != "" {
				s.client.Logger().Info("watching one database: the user may not watch the cluster", "database", database)
			}
			return nil
		case s.can.split && server != nil && server.HasErrorCode(codeUnknownStage):
			s.can.split = false
		case s.can.expanded && server != nil && server.HasErrorCode(codeUnknownOption):
			s.can.expanded = false
		case one && s.can.database == "" && mongodb.Denied(err):
			s.can.database = database
		default:
			return fmt.Errorf("try to read the log: %w", mongodb.AsFault(err))
		}
	}
}

// try opens a stream once and closes it.
func (s *Source) try(ctx context.Context) error {
	opts := options.ChangeStream().SetBatchSize(0)
	s.ask(opts, false)
	cursor, err := s.watch(ctx, s.home.pool, s.pipeline(whole), opts)
	if err != nil {
		return err
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), mongodb.CloseTimeout)
	defer cancel()
	_ = cursor.Close(closing) // a server that does not answer forgets it by itself
	return nil
}

// holds finds out whether the log reaches back to the time, by opening a stream there and reading
// from it: the server checks that, while it may be silent about a token that it no longer has. Its
// error is oplog.ErrPositionLost where the log does not.
func (s *Source) holds(ctx context.Context, at site, t change.Timestamp) error {
	opts := options.ChangeStream().SetBatchSize(1).SetStartAtOperationTime(&bson.Timestamp{T: t.T, I: t.I})
	// Everything, so that the first event ends the search, and little of it.
	cursor, err := s.watch(ctx, at.pool, mongo.Pipeline{bson.D{{Key: "$project", Value: keysOnly.project()}}}, opts)
	if err == nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), mongodb.CloseTimeout)
		defer cancel()
		_ = cursor.Close(closing)
		return nil
	}
	switch mongodb.Classify(err) {
	case mongodb.Lost, mongodb.BadToken:
		return &oplog.LostError{Err: err}
	case mongodb.Poison: // it has read the event
		return nil
	default:
		return err
	}
}

// watch opens a change stream of the scope that the user may watch.
func (s *Source) watch(
	ctx context.Context, pool *mongodb.Pool, pipeline mongo.Pipeline, opts *options.ChangeStreamOptionsBuilder,
) (*mongo.ChangeStream, error) {
	if s.can.database != "" {
		return pool.Driver().Database(s.can.database).Watch(ctx, pipeline, opts)
	}
	return pool.Driver().Watch(ctx, pipeline, opts)
}

// pipeline builds the stages behind $changeStream. Fragments are asked for last of all, as the
// server demands.
func (s *Source) pipeline(view view) mongo.Pipeline {
	pipeline := mongo.Pipeline{}
	if match := s.cfg.Watch.match(s.can); match != nil {
		pipeline = append(pipeline, bson.D{{Key: "$match", Value: match}})
	}
	if project := view.project(); project != nil {
		pipeline = append(pipeline, bson.D{{Key: "$project", Value: project}})
	}
	if s.can.split && view.splits() {
		pipeline = append(pipeline, bson.D{{Key: "$changeStreamSplitLargeEvent", Value: bson.D{}}})
	}
	return pipeline
}

// ask asks for what events are to have.
func (s *Source) ask(opts *options.ChangeStreamOptionsBuilder, lenient bool) {
	if s.can.expanded {
		opts.SetShowExpandedEvents(true)
	}
	s.cfg.Watch.images(opts, lenient)
}

// Fingerprint names what streams are opened with. An event's token is good only for streams of the
// same fingerprint.
func (s *Source) Fingerprint() string {
	return s.cfg.Watch.fingerprint(s.can)
}

// database returns the one database that the watch is about, if it is about one.
func (w Watch) database() (name string, one bool) {
	var all []string
	for _, ns := range w.Namespaces {
		db, _, _ := strings.Cut(ns, ".")
		all = append(all, db)
	}
	if all = unique(all); len(all) != 1 {
		return "", false
	}
	return all[0], true
}
