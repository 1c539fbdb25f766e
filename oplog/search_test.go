package oplog

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mongostream/streamer/change"
)

// A short log holds what is at or after its first entry; an old server's does not hold the time of
// that entry itself.
type short struct {
	first  change.Timestamp
	strict bool
	known  bool // the first entry can be looked at
	wraps  uint32
}

// open says whether the log holds the time, and what the first entry is after it has wrapped on.
func (l *short) open(at change.Timestamp) (ok bool, first change.Timestamp) {
	l.first.I += l.wraps
	if c := at.Compare(l.first); c < 0 || c == 0 && l.strict {
		if l.known {
			first = l.first
		}
		return false, first
	}
	return true, first
}

// find searches the log, and returns what it has found last, in how many tries.
func find(s *search, l *short) (found change.Timestamp, ok bool, tries int) {
	for {
		at, more := s.next()
		if !more || tries > 100 {
			return found, ok, tries
		}
		tries++
		holds, first := l.open(at)
		if !holds {
			s.refuse(at, first)
			continue
		}
		found, ok = at, true
		if s.hold(at) {
			return found, ok, tries
		}
	}
}

func TestSearchFindsTheEarliestPlace(t *testing.T) {
	from, first, end := change.Timestamp{T: 1000, I: 5}, change.Timestamp{T: 5000, I: 7}, change.Timestamp{T: 9000, I: 1}
	for name, c := range map[string]struct {
		log   short
		from  change.Timestamp
		want  change.Timestamp
		tries int
	}{
		"a newer server has its first entry":    {short{first: first, known: true}, from, first, 1},
		"an older one has not":                  {short{first: first, known: true, strict: true}, from, first.Next(), 2},
		"the position itself, at the entry":     {short{first: first, known: true, strict: true}, first, first.Next(), 2},
		"a log that wraps beside":               {short{first: first, known: true, wraps: 10}, from, change.Timestamp{T: 5000, I: 7 + 20 + 16}, 3},
		"a log that wraps fast":                 {short{first: first, known: true, wraps: 1000}, from, change.Timestamp{T: 5000, I: 7 + 4000 + 4096}, 5},
		"where it cannot be looked at":          {short{first: first}, from, change.Timestamp{T: 5001}, 13},
		"where the position is there after all": {short{first: from}, from, from, 1},
		"within one second":                     {short{first: change.Timestamp{T: 9000, I: 1}, strict: true}, change.Timestamp{T: 9000}, change.Timestamp{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var known change.Timestamp
			if c.log.known {
				known = c.log.first
			}
			got, ok, tries := find(newSearch(c.from, known, end), &c.log)
			if got != c.want || ok != !c.want.IsZero() || tries != c.tries {
				t.Errorf("found %v (%v) in %d tries", got, ok, tries)
			}
		})
	}
}

// Nothing is left to try where the log can be read anyway, and where nothing is known.
func TestSearchEnds(t *testing.T) {
	late := change.Timestamp{T: 9000, I: 1}
	for name, s := range map[string]*search{
		"known":           newSearch(change.Timestamp{T: 1}, change.Timestamp{T: 8000}, late),
		"unknown":         newSearch(change.Timestamp{T: 1}, change.Timestamp{}, late),
		"nothing known":   newSearch(change.Timestamp{T: 1}, change.Timestamp{}, change.Timestamp{}),
		"no end":          newSearch(change.Timestamp{T: 1}, change.Timestamp{T: 8000}, change.Timestamp{}),
		"behind the end":  newSearch(change.Timestamp{T: 9999}, change.Timestamp{}, late),
		"at the end":      newSearch(late, late, late),
		"at the end, too": newSearch(late, change.Timestamp{}, late),
	} {
		refuses := &short{first: change.Timestamp{T: 1 << 31}}
		if _, ok, tries := find(s, refuses); ok || tries > 40 {
			t.Errorf("%s: found %v, %d tries", name, ok, tries)
		}
	}
}

// Whatever the log is like, what is found is held and as early as one second, or one increment
// within a second, allows.
func TestSearchFindsItWhereverItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		time := func(name string) change.Timestamp {
			return change.Timestamp{T: rapid.Uint32Range(1000, 200_000).Draw(t, name), I: rapid.Uint32Range(1, 50_000).Draw(t, name+" increment")}
		}
		from, end := time("from"), time("end")
		if end.Compare(from) < 0 {
			from, end = end, from
		}
		l := short{first: time("first"), strict: rapid.Bool().Draw(t, "strict"), known: rapid.Bool().Draw(t, "known")}
		var known change.Timestamp
		if l.known {
			known = l.first
		}
		got, ok, tries := find(newSearch(from, known, end), &l)
		earliest := l.first
		if l.strict {
			earliest = earliest.Next()
		}
		if earliest.Compare(from) < 0 {
			earliest = from
		}
		switch {
		case tries > 40:
			t.Fatalf("%d tries", tries)
		case !ok && earliest.Compare(end) <= 0:
			t.Fatalf("nothing found, the log has %v", earliest)
		case ok && (got.Compare(earliest) < 0 || got.T > earliest.T+1):
			t.Fatalf("found %v, the log has %v", got, earliest)
		case ok && l.known && got != earliest:
			t.Fatalf("found %v, the log begins at %v", got, earliest)
		}
	})
}
