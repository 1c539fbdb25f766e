package oplog

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/query"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// stage is one step of the user's pipeline: exactly one of its parts is set.
type stage struct {
	match   *query.Filter
	project *query.Projection
}

// pipeline is what follows $changeStream.
type pipeline struct {
	stages []stage
	split  bool
	// early are the $match stages that come first and read nothing that is added later; cheap says that they
	// read only what Decision tells apart.
	early []*query.Filter
	cheap bool
	rest  []stage
}

func parsePipeline(stages []bsoncore.Document, splits bool) (*pipeline, error) {
	p := &pipeline{}
	for i, s := range stages {
		name, arg, _ := doc.First(s)
		if name == splitStage && splits {
			if err := p.parseSplit(arg, i == len(stages)-1); err != nil {
				return nil, err
			}
			continue
		}
		st, err := parseStage(name, arg)
		if err != nil {
			return nil, err
		}
		p.stages = append(p.stages, st)
	}
	p.arrange()
	return p, nil
}

const splitStage = "$changeStreamSplitLargeEvent"

func (p *pipeline) parseSplit(arg bsoncore.Value, last bool) error {
	switch {
	case arg.Type != bsoncore.TypeEmbeddedDocument || !doc.Empty(arg.Data):
		return wire.Errorf(7182800, "%s spec should be an empty object", splitStage)
	case p.split:
		return wire.Errorf(7183900, "%s can only be used once in the pipeline", splitStage)
	case !last:
		return wire.Errorf(7182802, "%s must be the last stage in the pipeline", splitStage)
	}
	p.split = true
	return nil
}

func parseStage(name string, arg bsoncore.Value) (stage, error) {
	switch name {
	case "$match":
		if arg.Type != bsoncore.TypeEmbeddedDocument {
			return stage{}, wire.Errorf(15959, "the match filter must be an expression in an object")
		}
		f, err := query.ParseFilter(arg.Data)
		return stage{match: f}, err
	case "$project":
		if arg.Type != bsoncore.TypeEmbeddedDocument || doc.Empty(arg.Data) {
			return stage{}, wire.Errorf(51272, "Invalid $project :: caused by :: projection specification must have at least one field")
		}
		p, err := query.ParseProjection(arg.Data)
		return stage{project: p}, err
	case "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith", "$redact":
		return stage{}, wire.Errorf(wire.CommandNotSupported, "devmongo does not support the stage %s", name)
	}
	if KnownStage(name) {
		return stage{}, wire.Errorf(wire.IllegalOperation, "%s is not permitted in a $changeStream pipeline", name)
	}
	return stage{}, wire.Errorf(wire.UnrecognizedStage, "Unrecognized pipeline stage name: '%s'", name)
}

// KnownStage reports whether MongoDB has an aggregation stage of that name.
func KnownStage(name string) bool {
	return slices.Contains([]string{
		"$addFields", "$bucket", "$bucketAuto", "$changeStream", "$collStats", "$count", "$currentOp", "$facet", "$geoNear",
		"$graphLookup", "$group", "$indexStats", "$limit", "$listLocalSessions", "$listSessions", "$lookup", "$match",
		"$merge", "$out", "$planCacheStats", "$project", "$redact", "$replaceRoot", "$replaceWith", "$sample", "$set",
		"$skip", "$sort", "$sortByCount", "$unionWith", "$unset", "$unwind",
	}, name)
}

// arrange finds the $match stages that may run before images are added.
func (p *pipeline) arrange() {
	p.cheap = true
	for i, s := range p.stages {
		if s.match == nil || readsAdded(s.match) {
			p.rest = p.stages[i:]
			return
		}
		p.early = append(p.early, s.match)
		p.cheap = p.cheap && cheap(s.match)
	}
}

// readsAdded reports whether a filter reads what is not in the event as the log keeps it.
func readsAdded(f *query.Filter) bool {
	return slices.ContainsFunc(f.Fields(), func(field string) bool {
		head, _, _ := strings.Cut(field, ".")
		return slices.Contains([]string{
			"fullDocument", "fullDocumentBeforeChange", "collectionUUID", "operationDescription", "stateBeforeChange", "updateDescription",
		}, head)
	})
}

// cheap reports whether a filter reads only names and the operation type: what is the same for all events of one
// kind in one namespace.
func cheap(f *query.Filter) bool {
	return !slices.ContainsFunc(f.Fields(), func(field string) bool {
		head, _, _ := strings.Cut(field, ".")
		return head != "ns" && head != "to" && head != "operationType"
	})
}

// matchEarly applies the early stages to an event of the log.
func (p *pipeline) matchEarly(event []byte) bool {
	for _, f := range p.early {
		if !f.Match(event) {
			return false
		}
	}
	return true
}

// run applies the other stages; it returns nil when the event does not pass.
func (p *pipeline) run(event bsoncore.Document) bsoncore.Document {
	for _, s := range p.rest {
		if s.match != nil && !s.match.Match(event) {
			return nil
		}
		if s.project != nil {
			event = s.project.Apply(event)
		}
	}
	return event
}
