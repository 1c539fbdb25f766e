package webhook

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/notice"
)

// A Summary stands for notices that were not sent singly.
type Summary struct {
	// Since and Until bound the time in which they were posted.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Count is how many there were, Missed how many more of which nothing is known but that.
	Count  uint64 `json:"count"`
	Missed uint64 `json:"missed,omitempty"`
	// Level is the highest severity among them.
	Level notice.Severity `json:"severity"`
	// Kinds are the counts by kind, the most severe first.
	Kinds []Tally `json:"kinds"`
}

// A Tally is how many notices there were of one kind.
type Tally struct {
	Channel notice.Channel  `json:"channel"`
	Kind    string          `json:"kind"`
	Level   notice.Severity `json:"severity"`
	Count   uint64          `json:"count"`
	// Last is the text of the last of them.
	Last string `json:"last"`
}

// A group of notices is counted together.
type group struct {
	channel notice.Channel
	kind    string
	level   notice.Severity
}

// A throttle decides which notices go singly. A window begins with a notice and ends after its time.
type throttle struct {
	window time.Duration
	burst  int

	ends    time.Time // of the window; zero while there is none
	began   time.Time
	singles map[notice.Severity]int
	tallies map[group]Tally
	missed  uint64
}

func newThrottle(window time.Duration, burst int) *throttle {
	return &throttle{window: window, burst: burst, singles: map[notice.Severity]int{}, tallies: map[group]Tally{}}
}

// begin begins a window where there is none.
func (t *throttle) begin(now time.Time) {
	if t.ends.IsZero() {
		t.began, t.ends = now, now.Add(t.window)
	}
}

// single reports whether a notice of the severity may go by itself.
func (t *throttle) single(now time.Time, level notice.Severity) bool {
	t.begin(now)
	t.singles[level]++
	return t.singles[level] <= t.burst
}

// count takes a notice into the summary.
func (t *throttle) count(n notice.Notice) {
	g := group{n.Channel, n.Kind, n.Level}
	tally := t.tallies[g]
	t.tallies[g] = Tally{Channel: n.Channel, Kind: n.Kind, Level: n.Level, Count: tally.Count + 1, Last: n.Text}
}

// miss takes notices into the summary of which nothing is known.
func (t *throttle) miss(now time.Time, missed uint64) {
	if missed > 0 {
		t.begin(now)
		t.missed += missed
	}
}

// summary ends the window, and returns what it has held back; ok is false where that is nothing.
func (t *throttle) summary(now time.Time) (s Summary, ok bool) {
	s = Summary{Since: t.began, Until: now, Missed: t.missed, Level: notice.Info, Kinds: slices.Collect(maps.Values(t.tallies))}
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

// sent forgets what was held back.
func (t *throttle) sent() {
	clear(t.tallies)
	t.missed = 0
}

// rank orders severities; what is none counts as Info.
func rank(s notice.Severity) int {
	return max(0, slices.Index([]notice.Severity{notice.Info, notice.Warning, notice.Critical}, s))
}
