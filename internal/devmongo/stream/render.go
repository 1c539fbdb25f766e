package stream

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
)

// maxEvent is the largest event that goes out: 16 MiB and 16 KiB.
const maxEvent = 16<<20 + 16<<10

// render makes the event that the stream's options ask for. Where they ask for nothing it is the log's own.
func (s *Stream) render(e *oplog.Entry, invalidate bool) (bsoncore.Document, error) {
	if invalidate {
		return s.invalidateEvent(e), nil
	}
	if e.Event != nil && !s.adds(e) {
		return e.Event, nil
	}
	b := doc.New()
	if e.Event == nil {
		s.collectionEvent(b, e)
		return b.Document(), nil
	}
	for name, v := range doc.All(e.Event) {
		if name == "ns" && e.Kind == oplog.Update {
			if err := s.postImage(b, e); err != nil {
				return nil, err
			}
		}
		if name == "updateDescription" && s.spec.expanded {
			s.updateDescription(b, v, e)
			continue
		}
		b.Value(name, v)
		if name == "clusterTime" && s.spec.expanded && e.NS.UUID != nil {
			b.Binary("collectionUUID", 4, e.NS.UUID[:])
		}
	}
	if d := description(e); s.spec.expanded && d != nil {
		b.Doc("operationDescription", d)
	}
	if err := s.preImage(b, e); err != nil {
		return nil, err
	}
	return b.Document(), nil
}

// adds reports whether the stream's options add anything to the entry's event.
func (s *Stream) adds(e *oplog.Entry) bool {
	return s.spec.expanded || e.Kind == oplog.Update && s.spec.full != imageDefault || e.Kind.CRUD() && e.Kind != oplog.Insert && s.spec.before != imageOff
}

// invalidateEvent is the event that ends a stream after a drop or a rename.
func (s *Stream) invalidateEvent(e *oplog.Entry) bsoncore.Document {
	b := doc.New().Doc("_id", s.identity(e, true, s.env.Release.TokenVersion()).Document())
	b.String("operationType", "invalidate").Timestamp("clusterTime", e.TS)
	if s.env.Release.WallTime() {
		b.Date("wallTime", e.Wall)
	}
	return b.Document()
}

// collectionEvent is the event of a kind that only streams with showExpandedEvents show.
func (s *Stream) collectionEvent(b *doc.Builder, e *oplog.Entry) {
	b.Doc("_id", s.identity(e, false, s.env.Release.TokenVersion()).Document())
	b.String("operationType", e.Kind.String()).Timestamp("clusterTime", e.TS)
	if e.NS.UUID != nil {
		b.Binary("collectionUUID", 4, e.NS.UUID[:])
	}
	b.Date("wallTime", e.Wall)
	namespace(b, "ns", e.NS)
	if d := description(e); d != nil {
		b.Doc("operationDescription", d)
	}
	if e.Detail != nil && e.Detail.StateBefore != nil {
		b.Doc("stateBeforeChange", e.Detail.StateBefore)
	}
}

func (s *Stream) updateDescription(b *doc.Builder, v bsoncore.Value, e *oplog.Entry) {
	b.Open("updateDescription")
	for name, field := range doc.All(v.Data) {
		b.Value(name, field)
	}
	b.Open("disambiguatedPaths")
	if e.Detail != nil && e.Detail.Disambiguated != nil {
		for name, path := range doc.All(e.Detail.Disambiguated) {
			b.Value(name, path)
		}
	}
	b.End().End()
}

// postImage appends the fullDocument of an update: looked up now, or kept in the log; null when there is none.
func (s *Stream) postImage(b *doc.Builder, e *oplog.Entry) error {
	var full bsoncore.Document
	switch s.spec.full {
	case imageLookup:
		key, _ := doc.Path(e.Event, "documentKey._id")
		full = s.env.Lookup(e.NS.UUID, key)
	case imageWhenAvailable, imageRequired:
		if e.Detail != nil {
			full = e.Detail.After
		}
	default:
		return nil
	}
	return appendImage(b, "fullDocument", full, s.spec.full, "post-image", e)
}

// preImage appends fullDocumentBeforeChange.
func (s *Stream) preImage(b *doc.Builder, e *oplog.Entry) error {
	if s.spec.before == imageOff || !e.Kind.CRUD() || e.Kind == oplog.Insert {
		return nil
	}
	var before bsoncore.Document
	if e.Detail != nil {
		before = e.Detail.Before
	}
	return appendImage(b, "fullDocumentBeforeChange", before, s.spec.before, "pre-image", e)
}

func appendImage(b *doc.Builder, name string, d bsoncore.Document, mode image, what string, e *oplog.Entry) error {
	switch {
	case d != nil:
		b.Doc(name, d)
	case mode == imageRequired:
		return fault.New(fault.NoMatchingDocument, "Change stream was configured to require a %s for all update, delete and replace events, but the %s was not found for event: %s",
			what, what, doc.Compact(e.Event))
	default:
		b.Null(name)
	}
	return nil
}
