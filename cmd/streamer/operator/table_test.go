package operator

import (
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/admin"
)

// The last column is wrapped within itself, and a cell that is a state is painted, not a word in a
// sentence.
func TestLinesFitTheTerminal(t *testing.T) {
	line := "mongodb  fail  no server answers: is it up and ok or fail"
	got := fit(line, []string{"mongodb", "fail", "no server answers: is it up and ok or fail"}, 40, false)
	if want := "mongodb  fail  no server answers: is it\n               up and ok or fail"; got != want {
		t.Errorf("%q", got)
	}
	got = fit("ok  fail  ok", []string{"ok", "fail", "ok"}, 80, true)
	if want := green + "ok" + plain + "  " + red + "fail" + plain + "  " + green + "ok" + plain; got != want {
		t.Errorf("%q", got)
	}
	got = fit("ok is a word    warn", []string{"ok is a word", "", "warn"}, 80, true)
	if want := "ok is a word    " + yellow + "warn" + plain; got != want {
		t.Errorf("%q", got)
	}
	for _, text := range []string{"", "short", "a word that is much longer-than-the-width-of-it-all here", "Grüße 你好 😀 und noch mehr"} {
		lines := wrap(text, 20)
		if rest := strings.NewReplacer(" ", "").Replace(strings.Join(lines, "")); rest != strings.ReplaceAll(text, " ", "") {
			t.Errorf("%q became %q", text, lines)
		}
		for _, line := range lines {
			if len([]rune(line)) > 20 {
				t.Errorf("%q is too wide", line)
			}
		}
	}
}

func TestNamesAreInTheOrderOfPeople(t *testing.T) {
	names := []string{"gateway-10", "gateway-2", "gateway", "gateway-1", "gateway-02", "a10b2", "a10b10", "a9", "10", "9"}
	slices.SortFunc(names, natural)
	if want := []string{"9", "10", "a9", "a10b2", "a10b10", "gateway", "gateway-1", "gateway-02", "gateway-2", "gateway-10"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

func TestWorstSubscribersComeFirst(t *testing.T) {
	of := func(name string, lag, room float64) admin.Subscriber {
		return admin.Subscriber{Subscriber: name, Lag: &lag, HeadRoom: &room}
	}
	for _, tt := range []struct {
		opts listOptions
		want string
	}{
		{listOptions{sort: sortName}, "a2 a10 b c"},
		{listOptions{sort: sortLag}, "b a10 a2 c"},
		{listOptions{sort: sortHeadRoom}, "a2 b a10 c"},
		{listOptions{sort: sortName, lagging: true}, "a10 b c"},
	} {
		l := listing{SubscriberList: &admin.SubscriberList{Subscribers: []admin.Subscriber{of("a10", 40, 300), of("a2", 1, 100), of("b", 50, 200), {Subscriber: "c"}}}}
		l.arrange(tt.opts)
		var names []string
		for _, s := range l.Subscribers {
			names = append(names, s.Subscriber)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.opts, got, tt.want)
		}
	}
}

func TestWorstPartitionsAreShown(t *testing.T) {
	lag := func(s float64) *float64 { return &s }
	var all []health.Partition
	for i := range 64 {
		all = append(all, health.Partition{ID: i, Status: health.Healthy, Lag: lag(float64(i % 7))})
	}
	all[40] = health.Partition{ID: 40, Status: "stuck", Error: "no server"}
	all[50] = health.Partition{ID: 50, Status: "lagging", Lag: lag(90)}
	all[60].HeadRoom = lag(100) // of 6 s, as others
	all[60].Lag = lag(6)
	var ids []int
	for _, p := range worstPartitions(all) {
		ids = append(ids, p.ID)
	}
	if want := []int{40, 50, 60, 6, 13}; !slices.Equal(ids, want) {
		t.Errorf("%v, want %v", ids, want)
	}
	if got := countStates(all); got != "62 healthy, 1 lagging, 1 stuck" {
		t.Errorf("%s", got)
	}
}
