package oplog

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// image says which image of a document an event is to carry.
type image string

const (
	imageDefault       image = "default"
	imageLookup        image = "updateLookup"
	imageWhenAvailable image = "whenAvailable"
	imageRequired      image = "required"
	imageOff           image = "off"
)

// streamSpec is a parsed $changeStream.
type streamSpec struct {
	full, before image
	expanded     bool
	cluster      bool
	resumeAfter  bsoncore.Document
	startAfter   bsoncore.Document
	startAt      *uint64
}

// streamStart is where a stream begins: after an event, or at a time.
type streamStart struct {
	ts     uint64
	event  *Token            // an event's token: the stream begins after that event
	token  bsoncore.Document // the first post-batch token
	chosen bool              // the client chose it: the log must reach back to it
}

func parseSpec(v bsoncore.Value, release Release) (*streamSpec, error) {
	if v.Type != bsoncore.TypeEmbeddedDocument {
		return nil, wire.Errorf(50808, "$changeStream stage expects a document as argument.")
	}
	s := &streamSpec{full: imageDefault, before: imageOff}
	for name, v := range doc.All(v.Data) {
		if err := s.option(name, v, release); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *streamSpec) option(name string, v bsoncore.Value, release Release) error {
	later := release.Since(R60)
	switch {
	case name == "fullDocument":
		text, ok := v.StringValueOK()
		s.full = image(text)
		return typed(ok, name, v, "string")
	case name == "resumeAfter", name == "startAfter":
		return s.resume(name, v)
	case name == "startAtOperationTime":
		_, _, ok := v.TimestampOK()
		ts := query.Timestamp(v)
		s.startAt = &ts
		return typed(ok, name, v, "timestamp")
	case name == "allChangesForCluster":
		s.cluster = doc.Truth(v)
		return typed(v.Type == bsoncore.TypeBoolean, name, v, "bool")
	case name == "fullDocumentBeforeChange" && later:
		text, ok := v.StringValueOK()
		s.before = image(text)
		return typed(ok, name, v, "string")
	case name == "showExpandedEvents" && later:
		s.expanded = doc.Truth(v)
		return typed(v.Type == bsoncore.TypeBoolean, name, v, "bool")
	case name == "showMigrationEvents", later && (name == "showSystemEvents" || name == "showRawUpdateDescription"):
		return wire.Errorf(wire.CommandNotSupported, "devmongo does not support $changeStream.%s", name)
	default:
		return wire.Errorf(40415, "BSON field '$changeStream.%s' is an unknown field.", name)
	}
}

func (s *streamSpec) resume(name string, v bsoncore.Value) error {
	if v.Type != bsoncore.TypeEmbeddedDocument {
		return typed(false, name, v, "object")
	}
	if name == "resumeAfter" {
		s.resumeAfter = v.Data
	} else {
		s.startAfter = v.Data
	}
	return nil
}

func typed(ok bool, name string, v bsoncore.Value, want string) error {
	if ok {
		return nil
	}
	return wire.Errorf(wire.TypeMismatch, "BSON field '$changeStream.%s' is the wrong type '%s', expected type '%s'", name, doc.TypeName(v.Type), want)
}

// check refuses namespaces that cannot be watched and unknown options.
func (s *streamSpec) check(db, coll string, release Release) error {
	ns := db + "." + coll
	if coll == "" {
		ns = db + ".$cmd.aggregate"
	}
	isInternal := db == "local" || db == "config"
	switch {
	case s.cluster && (db != "admin" || coll != ""):
		return wire.Errorf(wire.InvalidOptions, "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and with no collection name; found %s", ns)
	case isInternal || db == "admin" && !s.cluster:
		return wire.Errorf(wire.InvalidNamespace, "$changeStream may not be opened on the internal %s database", db)
	case (&Namespace{DB: db, Coll: coll}).internal() && !s.cluster:
		return wire.Errorf(wire.InvalidNamespace, "$changeStream may not be opened on the internal %s collection", ns)
	}
	return s.images(release)
}

func (s *streamSpec) images(release Release) error {
	switch s.full {
	case imageDefault, imageLookup:
	case imageWhenAvailable, imageRequired:
		if !release.Since(R60) {
			return wire.Errorf(40575, "unrecognized value for the 'fullDocument' option to the $changeStream stage. Expected 'default' or 'updateLookup', got '%s'", s.full)
		}
	default:
		if !release.Since(R60) {
			return wire.Errorf(40575, "unrecognized value for the 'fullDocument' option to the $changeStream stage. Expected 'default' or 'updateLookup', got '%s'", s.full)
		}
		return enumeration(string(s.full), "fullDocument")
	}
	switch s.before {
	case imageOff, imageWhenAvailable, imageRequired:
		return nil
	default:
		return enumeration(string(s.before), "fullDocumentBeforeChange")
	}
}

func enumeration(value, field string) error {
	return wire.Errorf(wire.BadValue, "Enumeration value '%s' for field '$changeStream.%s' is not a valid value.", value, field)
}

// begin works out where the stream starts.
func (s *streamSpec) begin(coll string, log *Log, version int32) (streamStart, error) {
	if s.resumeAfter != nil && s.startAfter != nil {
		return streamStart{}, wire.Errorf(50865, "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage")
	}
	given := s.resumeAfter
	if given == nil {
		given = s.startAfter
	}
	if given != nil {
		return s.after(given, coll)
	}
	if s.startAt != nil {
		return streamStart{ts: *s.startAt, token: HighWatermark(*s.startAt, version).Document(), chosen: true}, nil
	}
	now := log.Applied() + 1 // one tick beyond the newest entry, so that the stream does not show it
	return streamStart{ts: now, token: HighWatermark(now, version).Document()}, nil
}

func (s *streamSpec) after(given bsoncore.Document, coll string) (streamStart, error) {
	t, err := ParseToken(given)
	if err != nil {
		return streamStart{}, err
	}
	switch {
	case s.startAt != nil:
		return streamStart{}, wire.Errorf(40674, "Only one type of resume option is allowed, but multiple were found.")
	case s.resumeAfter != nil && t.FromInvalidate:
		return streamStart{}, wire.Errorf(wire.InvalidResumeToken, "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification.")
	case coll != "" && t.UUID == nil && !t.IsMark():
		return streamStart{}, wire.Errorf(wire.InvalidResumeToken, "Attempted to resume a single-collection stream, but the resume token does not include a UUID.")
	}
	at := streamStart{ts: t.TS, token: doc.Clone(given), chosen: true}
	if !t.IsMark() {
		at.event = &t
	}
	return at, nil
}

// stage is one step of the user's pipeline: exactly one of its parts is set.
type stage struct {
	match   *query.Filter
	project *query.Projection
}

// pipeline has the stages after $changeStream.
type pipeline struct {
	stages []stage
	split  bool
	// early are the $match stages that come first and read nothing that is added later; cheap says
	// that they read only fields that Decision distinguishes.
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

// readsAdded reports whether a filter reads fields that are not in the log's form of the event.
func readsAdded(f *query.Filter) bool {
	return slices.ContainsFunc(f.Fields(), func(field string) bool {
		head, _, _ := strings.Cut(field, ".")
		return slices.Contains([]string{
			"fullDocument", "fullDocumentBeforeChange", "collectionUUID", "operationDescription", "stateBeforeChange", "updateDescription",
		}, head)
	})
}

// cheap reports whether a filter reads only names and the operation type, which are the same for
// all events of one kind in one namespace.
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
