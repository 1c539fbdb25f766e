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

// Error codes of servers that do not support a stage of the pipeline or an option of $changeStream.
const (
	codeUnknownStage  = 40324
	codeUnknownOption = 40415
)

// abilities are the features that the deployment supports and the user may use. Together with the
// watch they decide how streams are opened.
type abilities struct {
	split bool // large events come in fragments ($changeStreamSplitLargeEvent, since 6.0.9)
	// expanded asks for expanded events (showExpandedEvents, since 6.0): only these contain
	// disambiguatedPaths (since 6.1), which explain field names with a dot or of digits in an
	// update.
	expanded bool
	database string // the database to watch, if the user may not watch the cluster
}

// Probe detects the deployment's features and the user's rights by opening and closing a stream; it
// does not trust version numbers. Call it before Open. Its error names a problem that an operator
// must fix, or says that the deployment does not answer.
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
	_ = cursor.Close(closing) // a server that does not answer drops the cursor after its own timeout
	return nil
}

// holds checks whether the oplog reaches back to the time, by opening a stream there and reading
// from it. The server reports a lost time, but may say nothing about a lost token. Its error wraps
// oplog.ErrPositionLost if the oplog does not reach back so far.
func (s *Source) holds(ctx context.Context, at site, t change.Timestamp) error {
	opts := options.ChangeStream().SetBatchSize(1).SetStartAtOperationTime(&bson.Timestamp{T: t.T, I: t.I})
	// No filter, so that the first event ends the search, and only a few fields of it.
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
	case mongodb.Poison: // the server has read the event
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

// pipeline builds the stages after $changeStream. The stage that splits events is the last, as the
// server requires.
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

// ask sets the options that decide what events contain.
func (s *Source) ask(opts *options.ChangeStreamOptionsBuilder, lenient bool) {
	if s.can.expanded {
		opts.SetShowExpandedEvents(true)
	}
	s.cfg.Watch.images(opts, lenient)
}

// Fingerprint identifies the options of the streams. An event's token is valid only for streams
// with the same fingerprint.
func (s *Source) Fingerprint() string {
	return s.cfg.Watch.fingerprint(s.can)
}

// database returns the watch's database, if it has exactly one.
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
