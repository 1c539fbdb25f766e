package oplog

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// maxEvent is the largest event that goes out: 16 MiB and 16 KiB.
const maxEvent = 16<<20 + 16<<10

// render makes the event that the stream's options ask for. Where they ask for nothing it is the log's own.
func (s *stream) render(e *Entry, invalidate bool) (bsoncore.Document, error) {
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
		if name == "ns" && e.kind == Update {
			if err := s.postImage(b, e); err != nil {
				return nil, err
			}
		}
		if name == "updateDescription" && s.spec.expanded {
			s.updateDescription(b, v, e)
			continue
		}
		b.Value(name, v)
		if name == "clusterTime" && s.spec.expanded && e.ns.UUID != nil {
			b.Binary("collectionUUID", 4, e.ns.UUID[:])
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
func (s *stream) adds(e *Entry) bool {
	return s.spec.expanded || e.kind == Update && s.spec.full != imageDefault || e.kind.crud() && e.kind != Insert && s.spec.before != imageOff
}

// invalidateEvent is the event that ends a stream after a drop or a rename.
func (s *stream) invalidateEvent(e *Entry) bsoncore.Document {
	b := doc.New().Doc("_id", s.identity(e, true, s.env.Log.Release().tokenVersion()).Document())
	b.String("operationType", "invalidate").Timestamp("clusterTime", e.TS)
	if s.env.Log.Release().WallTime() {
		b.Date("wallTime", e.wall)
	}
	return b.Document()
}

// collectionEvent is the event of a kind that only streams with showExpandedEvents show.
func (s *stream) collectionEvent(b *doc.Builder, e *Entry) {
	b.Doc("_id", s.identity(e, false, s.env.Log.Release().tokenVersion()).Document())
	b.String("operationType", e.kind.String()).Timestamp("clusterTime", e.TS)
	if e.ns.UUID != nil {
		b.Binary("collectionUUID", 4, e.ns.UUID[:])
	}
	b.Date("wallTime", e.wall)
	namespace(b, "ns", e.ns)
	if d := description(e); d != nil {
		b.Doc("operationDescription", d)
	}
	if e.Detail != nil && e.Detail.stateBefore != nil {
		b.Doc("stateBeforeChange", e.Detail.stateBefore)
	}
}

func (s *stream) updateDescription(b *doc.Builder, v bsoncore.Value, e *Entry) {
	b.Open("updateDescription")
	for name, field := range doc.All(v.Data) {
		b.Value(name, field)
	}
	b.Open("disambiguatedPaths")
	if e.Detail != nil && e.Detail.disambiguated != nil {
		for name, path := range doc.All(e.Detail.disambiguated) {
			b.Value(name, path)
		}
	}
	b.End().End()
}

// postImage appends the fullDocument of an update: looked up now, or kept in the log; null when there is none.
func (s *stream) postImage(b *doc.Builder, e *Entry) error {
	var full bsoncore.Document
	switch s.spec.full {
	case imageLookup:
		key, _ := doc.Path(e.Event, "documentKey._id")
		full = s.env.Lookup(e.ns.UUID, key)
	case imageWhenAvailable, imageRequired:
		if e.Detail != nil {
			full = e.Detail.after
		}
	default:
		return nil
	}
	return appendImage(b, "fullDocument", full, s.spec.full, "post-image", e)
}

// preImage appends fullDocumentBeforeChange.
func (s *stream) preImage(b *doc.Builder, e *Entry) error {
	if s.spec.before == imageOff || !e.kind.crud() || e.kind == Insert {
		return nil
	}
	var before bsoncore.Document
	if e.Detail != nil {
		before = e.Detail.before
	}
	return appendImage(b, "fullDocumentBeforeChange", before, s.spec.before, "pre-image", e)
}

func appendImage(b *doc.Builder, name string, d bsoncore.Document, mode image, what string, e *Entry) error {
	switch {
	case d != nil:
		b.Doc(name, d)
	case mode == imageRequired:
		return wire.Errorf(wire.NoMatchingDocument, "Change stream was configured to require a %s for all update, delete and replace events, but the %s was not found for event: %s",
			what, what, doc.Compact(e.Event))
	default:
		b.Null(name)
	}
	return nil
}
