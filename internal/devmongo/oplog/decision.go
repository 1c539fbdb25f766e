package oplog

import (
	"github.com/mongostream/streamer/internal/devmongo/doc"
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
	ns, to *Namespace
	kind   Kind
}

const maxDecisions = 4096

func (m *decisions) of(e *Entry, decide func(*Entry) decision) decision {
	k := key{ns: e.ns, kind: e.kind}
	if e.kind == Rename {
		k.to = e.to()
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
func (s *stream) decide(e *Entry) decision {
	switch {
	case !s.scope.shows(e) || !e.kind.classic() && !s.spec.expanded:
		return out
	case !s.pipeline.cheap:
		return unsure
	case s.pipeline.matchEarly(names(e)):
		return passes
	default:
		return filtered
	}
}

func names(e *Entry) []byte {
	b := doc.New().String("operationType", e.kind.String())
	namespace(b, "ns", e.ns)
	if to := e.to(); to != nil {
		namespace(b, "to", to)
	}
	return b.Bytes()
}

func namespace(b *doc.Builder, name string, ns *Namespace) {
	b.Open(name).String("db", ns.DB)
	if ns.Coll != "" {
		b.String("coll", ns.Coll)
	}
	b.End()
}
