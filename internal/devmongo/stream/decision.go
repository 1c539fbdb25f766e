package stream

import (
	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
)

// decision is what a stream thinks of all entries of one kind in one namespace.
type decision uint8

const (
	undecided decision = iota
	out                // not in scope
	filtered           // in scope, and the early stages refuse it
	passes             // in scope, and the early stages let it pass
	unsure             // in scope; the early stages read more than names
)

// decisions remembers them. Namespaces come and go, so it forgets everything now and then.
type decisions struct {
	last  key
	value decision
	known map[key]decision
}

type key struct {
	ns, to *oplog.Namespace
	kind   oplog.Kind
}

const maxDecisions = 4096

func (m *decisions) of(e *oplog.Entry, decide func(*oplog.Entry) decision) decision {
	k := key{ns: e.NS, kind: e.Kind}
	if e.Kind == oplog.Rename {
		k.to = e.To()
	}
	if m.value != undecided && k == m.last {
		return m.value
	}
	d := m.known[k]
	if d == undecided {
		if m.known == nil || len(m.known) >= maxDecisions {
			m.known = map[key]decision{}
		}
		d = decide(e)
		m.known[k] = d
	}
	m.last, m.value = k, d
	return d
}

// decide works one out. The early stages see a document with nothing but names and the operation type.
func (s *Stream) decide(e *oplog.Entry) decision {
	switch {
	case !s.scope.shows(e) || !e.Kind.Classic() && !s.spec.expanded:
		return out
	case !s.pipeline.cheap:
		return unsure
	case s.pipeline.matchEarly(names(e)):
		return passes
	default:
		return filtered
	}
}

func names(e *oplog.Entry) []byte {
	b := doc.New().String("operationType", e.Kind.String())
	namespace(b, "ns", e.NS)
	if to := e.To(); to != nil {
		namespace(b, "to", to)
	}
	return b.Bytes()
}

func namespace(b *doc.Builder, name string, ns *oplog.Namespace) {
	b.Open(name).String("db", ns.DB)
	if ns.Coll != "" {
		b.String("coll", ns.Coll)
	}
	b.End()
}
