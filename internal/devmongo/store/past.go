package store

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// past is a document as it was before a change.
type past struct {
	c   *collection
	key string
	doc bsoncore.Document // nil where there was none
	ts  uint64            // cluster time of the change
}

// remember keeps what a change at ts is about to replace, for reads of what is committed; the caller holds mu for writing. Where the
// log commits at once there are no such reads.
func (s *Store) remember(c *collection, key string, ts uint64) {
	if !s.log.Lags() {
		s.past = nil
		return
	}
	committed, keep := s.log.Committed(), 0
	for keep < len(s.past) && s.past[keep].ts <= committed {
		keep++
	}
	p := past{c: c, key: key, ts: ts}
	if r := c.docs[key]; r != nil {
		p.doc = r.doc
	}
	s.past = append(s.past[keep:], p)
}

// asOf is what makes of a collection what it was at a cluster time that is not before the committed one; the caller holds mu.
func (s *Store) asOf(c *collection, ts uint64) (was overlay) {
	for i := len(s.past) - 1; i >= 0 && s.past[i].ts > ts; i-- {
		if p := s.past[i]; p.c == c {
			was.Write(p.key, p.doc)
		}
	}
	return was
}
