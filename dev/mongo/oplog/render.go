package oplog

import (
	"bytes"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// maxEvent is the largest event that goes out: 16 MiB and 16 KiB.
const maxEvent = 16<<20 + 16<<10

// render makes the event that the stream's options ask for. Where they ask for nothing it is the
// log's own.
func (s *Stream) render(e *Entry, invalidate bool) (bsoncore.Document, error) {
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
		if name == "_id" && s.renames() {
			b.Doc(name, s.identity(e, false, s.version).Document())
			continue
		}
		if name == "ns" && e.Kind == Update {
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

// adds reports whether the entry's event goes out with something else than the log has.
func (s *Stream) adds(e *Entry) bool {
	return s.renames() || s.spec.expanded || e.Kind == Update && s.spec.full != imageDefault || e.Kind.crud() && e.Kind != Insert && s.spec.before != imageOff
}

// renames reports whether events get tokens of another version than those that the log has.
func (s *Stream) renames() bool { return s.version != s.env.Log.Release().tokenVersion() }

// invalidateEvent is the event that ends a stream after a drop or a rename.
func (s *Stream) invalidateEvent(e *Entry) bsoncore.Document {
	b := doc.New().Doc("_id", s.identity(e, true, s.version).Document())
	b.String("operationType", "invalidate").Timestamp("clusterTime", e.TS)
	if s.env.Log.Release().WallTime() {
		b.Date("wallTime", e.Wall)
	}
	return b.Document()
}

// collectionEvent is the event of a kind that only streams with showExpandedEvents show.
func (s *Stream) collectionEvent(b *doc.Builder, e *Entry) {
	b.Doc("_id", s.identity(e, false, s.version).Document())
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

func (s *Stream) updateDescription(b *doc.Builder, v bsoncore.Value, e *Entry) {
	b.Open("updateDescription")
	for name, field := range doc.All(v.Data) {
		b.Value(name, field)
	}
	if !s.env.Log.Release().Since(R70) { // since 6.1
		b.End()
		return
	}
	b.Open("disambiguatedPaths")
	if e.Detail != nil && e.Detail.Disambiguated != nil {
		for name, path := range doc.All(e.Detail.Disambiguated) {
			b.Value(name, path)
		}
	}
	b.End().End()
}

// postImage appends the fullDocument of an update: looked up now, or kept in the log; null when
// there is none.
func (s *Stream) postImage(b *doc.Builder, e *Entry) error {
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
func (s *Stream) preImage(b *doc.Builder, e *Entry) error {
	if s.spec.before == imageOff || !e.Kind.crud() || e.Kind == Insert {
		return nil
	}
	var before bsoncore.Document
	if e.Detail != nil {
		before = e.Detail.Before
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

// maxWhole is the largest event that $changeStreamSplitLargeEvent leaves whole, lessWhole that of
// streams whose splits vary.
const (
	maxWhole  = maxEvent - 8<<10
	lessWhole = 12 << 20
)

// finish checks an event that has passed the stages and queues it, split where it is too large.
func (s *Stream) finish(e *Entry, invalidate bool, event, shown bsoncore.Document) error {
	if err := unmodified(event, shown); err != nil {
		return err
	}
	if s.pipeline.split {
		fragments, err := s.splitEvent(e, invalidate, shown)
		if err != nil {
			return err
		}
		for _, f := range fragments {
			if err := s.queue(e, invalidate, f.number, f.doc); err != nil {
				return err
			}
		}
		return nil
	}
	return s.queue(e, invalidate, NoFragment, shown)
}

// queue makes a document wait for a place in a batch, unless the resume point is still to come.
func (s *Stream) queue(e *Entry, invalidate bool, fragment int32, d bsoncore.Document) error {
	if !s.beforeStages() {
		if passed, err := s.seek(e, invalidate, fragment); !passed {
			return err
		}
	}
	if len(d) > maxEvent {
		return s.tooLarge(d)
	}
	s.pending = append(s.pending, d)
	s.position = e.TS
	return nil
}

func (s *Stream) tooLarge(d bsoncore.Document) error {
	name, v, _ := doc.First(d)
	prefix := ""
	switch {
	case s.env.Log.Release().Since(R70):
		prefix = "Executor error during getMore :: caused by :: "
	case s.env.Log.Release().Since(R60):
		prefix = "PlanExecutor error during aggregation :: caused by :: "
	}
	return wire.Errorf(wire.BSONObjectTooLarge, "%sBSONObj size: %d (0x%X) is invalid. Size must be between 0 and %d(16MB) First element: %s",
		prefix, len(d), len(d), maxEvent, doc.Element(name, v))
}

// unmodified checks that the stages left _id, the resume token, as it was.
func unmodified(event, shown bsoncore.Document) error {
	want, _ := doc.Field(event, "_id")
	got, ok := doc.Field(shown, "_id")
	if ok && bytes.Equal(want.Data, got.Data) {
		return nil
	}
	text := "{}"
	if ok {
		text = doc.Text(doc.New().Value("_id", got).Bytes())
	}
	return wire.Errorf(wire.ChangeStreamFatalError, "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. "+
		"Modifying the _id field of an event makes it impossible to resume the stream from that point. Only transformations that retain the unmodified _id field are allowed. "+
		"Expected: %s but found: %s", doc.Text(doc.New().Value("_id", want).Bytes()), text)
}

// piece is an event or one fragment of it.
type piece struct {
	number int32
	doc    bsoncore.Document
}

// splitEvent cuts a large event into fragments; those before the one that the stream resumes after
// are left out.
func (s *Stream) splitEvent(e *Entry, invalidate bool, d bsoncore.Document) ([]piece, error) {
	skip := int32(0)
	if s.fragment != nil && s.resume != nil && s.compare(e, invalidate, NoFragment) == needsSplit {
		skip = s.fragment.Fragment
		if len(d) <= s.whole {
			return nil, wire.Errorf(wire.ChangeStreamFatalError, "Attempted to resume from a split event fragment, but the event in the resumed stream was not large enough to be split")
		}
	}
	if len(d) <= s.whole {
		return []piece{{NoFragment, d}}, nil
	}
	pieces, err := s.fragments(e, invalidate, d)
	if err != nil {
		return nil, err
	}
	if int(skip) >= len(pieces) {
		return nil, wire.Errorf(wire.ChangeStreamFatalError, "Attempted to resume from a split event, but the resumed stream produced a different split. "+
			"Ensure that the pipeline used to resume is the same as the original")
	}
	return pieces[skip:], nil
}

type field struct {
	name  string
	value bsoncore.Value
	size  int
}

// fragments puts the fields, smallest first, into as few fragments as that takes.
func (s *Stream) fragments(e *Entry, invalidate bool, d bsoncore.Document) ([]piece, error) {
	var fields []field
	for name, v := range doc.All(d) {
		if name != "_id" {
			fields = append(fields, field{name, v, 1 + len(name) + 1 + len(v.Data)})
		}
	}
	if len(fields) == 0 {
		return nil, wire.Errorf(7182502, "Cannot split an empty event or an event containing solely '_id' field")
	}
	slices.SortFunc(fields, func(a, b field) int {
		if a.size != b.size {
			return a.size - b.size
		}
		return strings.Compare(a.name, b.name)
	})
	id := s.identity(e, invalidate, s.version)
	groups, err := pack(fields, s.whole-len(id.Document()), len(id.Document()))
	if err != nil {
		return nil, err
	}
	pieces := make([]piece, len(groups))
	for i, group := range groups {
		id.Fragment = int32(i)
		b := doc.New().Doc("_id", id.Document())
		b.Open("splitEvent").Int32("fragment", int32(i+1)).Int32("of", int32(len(groups))).End()
		for _, f := range group {
			b.Value(f.name, f.value)
		}
		pieces[i] = piece{int32(i), b.Document()}
	}
	return pieces, nil
}

// pack groups fields in order so that each group fits one fragment of at most limit bytes, whose
// token has about tokenSize bytes.
func pack(fields []field, limit, tokenSize int) ([][]field, error) {
	const frame = 64 // of splitEvent and the document itself
	var groups [][]field
	size := limit
	for _, f := range fields {
		if size+f.size > limit {
			groups = append(groups, nil)
			size = 2*tokenSize + frame
		}
		if size += f.size; size > limit {
			return nil, wire.Errorf(7182500, "Splitting change event failed: fragment size %d is greater than maximum allowed fragment size %d", size, limit)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], f)
	}
	return groups, nil
}
