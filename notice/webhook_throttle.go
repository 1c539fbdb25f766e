package notice

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A Summary replaces notices that were not sent individually.
type Summary struct {
	// Since and Until bound the time of the notices.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Count is the number of notices; Missed is the number of further notices that were dropped
	// unread.
	Count  uint64 `json:"count"`
	Missed uint64 `json:"missed,omitempty"`
	// Level is the highest severity among them.
	Level Severity `json:"severity"`
	// Kinds are the counts by kind, most severe first.
	Kinds []Tally `json:"kinds"`
}

// A Tally counts the notices of one kind.
type Tally struct {
	Channel Channel  `json:"channel"`
	Kind    string   `json:"kind"`
	Level   Severity `json:"severity"`
	Count   uint64   `json:"count"`
	// Last is the text of the last one.
	Last string `json:"last"`
}

// A group is the key of a Tally.
type group struct {
	channel Channel
	kind    string
	level   Severity
}

// A budget is that of the notices of a severity which the same parties can cause.
type budget struct {
	history History
	level   Severity
}

// A throttle decides which notices are sent individually. A window begins with a notice and ends
// after a fixed time.
type throttle struct {
	window time.Duration
	burst  int

	ends    time.Time // of the window; zero while there is none
	began   time.Time
	singles map[budget]int
	tallies map[group]Tally
	missed  uint64
}

func newThrottle(window time.Duration, burst int) *throttle {
	return &throttle{window: window, burst: burst, singles: map[budget]int{}, tallies: map[group]Tally{}}
}

// begin begins a window unless there is one.
func (t *throttle) begin(now time.Time) {
	if t.ends.IsZero() {
		t.began = now
		t.ends = now.Add(t.window)
	}
}

// single reports whether a notice may be sent individually.
func (t *throttle) single(now time.Time, n Notice) bool {
	t.begin(now)
	b := budget{n.History(), n.Level}
	t.singles[b]++
	return t.singles[b] <= t.burst
}

// count adds a notice to the summary.
func (t *throttle) count(n Notice) {
	g := group{n.Channel, n.Kind, n.Level}
	tally := t.tallies[g]
	t.tallies[g] = Tally{Channel: n.Channel, Kind: n.Kind, Level: n.Level, Count: tally.Count + 1, Last: n.Text}
}

// miss adds the number of dropped notices to the summary.
func (t *throttle) miss(now time.Time, missed uint64) {
	if missed > 0 {
		t.begin(now)
		t.missed += missed
	}
}

// summary ends the window and returns its summary; ok is false if it is empty.
func (t *throttle) summary(now time.Time) (s Summary, ok bool) {
	s = Summary{Since: t.began, Until: now, Missed: t.missed, Level: Info, Kinds: slices.Collect(maps.Values(t.tallies))}
	for _, k := range s.Kinds {
		s.Count += k.Count
		if rank(k.Level) > rank(s.Level) {
			s.Level = k.Level
		}
	}
	slices.SortFunc(s.Kinds, func(a, b Tally) int {
		return cmp.Or(cmp.Compare(rank(b.Level), rank(a.Level)), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Kind, b.Kind))
	})
	t.ends = time.Time{}
	clear(t.singles)
	return s, s.Count+s.Missed > 0
}

// sent clears the summary.
func (t *throttle) sent() {
	clear(t.tallies)
	t.missed = 0
}

// rank orders severities; an unknown one counts as Info.
func rank(s Severity) int {
	return max(0, slices.Index([]Severity{Info, Warning, Critical}, s))
}
