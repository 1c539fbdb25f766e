package delivery

import (
	"iter"

	"github.com/mongostream/streamer/change"
)

func (l leavers) add(sub *Subscription) {
	ns := sub.selects()
	if l[ns] == nil {
		l[ns] = make(map[*Subscription]struct{})
	}
	l[ns][sub] = struct{}{}
}

func (l leavers) remove(sub *Subscription) {
	ns := sub.selects()
	if delete(l[ns], sub); len(l[ns]) == 0 {
		delete(l, ns)
	}
}

// selects returns the namespaces that a subscription's filter selects, as leavers do.
func (sub *Subscription) selects() change.Namespace {
	f := sub.Program.Filter()
	return change.Namespace{DB: f.DB, Coll: f.Coll}
}

// of yields those that select the event's document.
func (l leavers) of(e *change.Event) iter.Seq[*Subscription] {
	return func(yield func(*Subscription) bool) {
		if len(l) == 0 || e.Key() == nil || e.Op() == change.OpInsert {
			return
		}
		ns := e.Namespace()
		for _, selected := range []change.Namespace{ns, {DB: ns.DB}, {Coll: ns.Coll}, {}} {
			for sub := range l[selected] {
				if !yield(sub) {
					return
				}
			}
		}
	}
}
