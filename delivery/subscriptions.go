package delivery

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
)

// Subscribe adds subscriptions, or replaces those with the same IDs, and returns the position after
// which they apply, zero if the session has ended.
func (s *Session) Subscribe(subscriptions []Subscription) change.Position {
	var from change.Position
	did := s.await(func(s *stream) {
		s.add(subscriptions)
		from = s.at()
	})
	if !did {
		return change.Position{}
	}
	return from
}

// Unsubscribe removes subscriptions. Unknown IDs are ignored.
func (s *Session) Unsubscribe(ids []string) {
	s.await(func(s *stream) {
		for _, id := range ids {
			s.remove(id)
		}
	})
}

// add adds copies of the subscriptions: the caller may keep and use its own, even while this
// session ends.
func (s *stream) add(subscriptions []Subscription) {
	added := make([]*Subscription, 0, len(subscriptions))
	for _, subscription := range subscriptions {
		sub := &subscription
		s.remove(sub.ID)
		sub.Form = sub.Form.keyed()
		if sub.group = s.groups[sub.Form.key]; sub.group == nil {
			sub.group = &group{form: sub.Form}
			s.groups[sub.Form.key] = sub.group
		}
		sub.group.size++
		sub.session = s.Session
		sub.stream = s
		sub.key = match.ID(s.hub.lastKey.Add(1))
		sub.ids = []string{sub.ID}
		sub.failed = newErrorLimit(func(text string, last error) {
			s.Notify(Notice{Kind: "filter_failed", Text: text, Subscription: sub.ID, Code: fault.Of(last), At: time.Now()})
		})
		s.subscriptions[sub.ID] = sub
		s.byKey[sub.key] = sub
		if warning := sub.Program.Warning(); warning != "" {
			s.Notify(Notice{Kind: "filter_doubtful", Text: warning, Subscription: sub.ID, Code: fault.FilterDoubtful, At: time.Now()})
		}
		if sub.Missing != "" {
			s.Notify(missingNotice(sub.ID, sub.Missing))
		}
		if sub.Leaves {
			s.leavers.add(sub)
			sub.known = &knownDocuments{whole: sub.Fresh && !s.cfg.Attached, of: make(map[string]knownDocument)}
		}
		if s.loop != nil {
			s.loop.include(sub)
		}
		added = append(added, sub)
	}
	s.resumeSnapshots(slices.DeleteFunc(added, func(sub *Subscription) bool { return s.subscriptions[sub.ID] != sub }))
}

// remove removes a subscription.
func (s *stream) remove(id string) {
	sub := s.subscriptions[id]
	if sub == nil {
		return
	}
	delete(s.subscriptions, id)
	delete(s.byKey, sub.key)
	if sub.known != nil {
		s.leavers.remove(sub)
		for key, doc := range sub.known.of {
			s.remembers(-doc.size(key))
		}
	}
	if sub.group.size--; sub.group.size == 0 {
		delete(s.groups, sub.Form.key)
	}
	if s.loop != nil {
		s.loop.exclude(sub)
	}
	sub.abandon()
	sub.endTrail()
	s.setProgress(id, nil)
}
