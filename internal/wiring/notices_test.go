package wiring

import (
	"fmt"
	"testing"
	"time"

	"github.com/mongostream/streamer/notice"
)

func posted(text string) notice.Notice {
	return notice.Notice{
		Channel: notice.Health, Kind: notice.KindMoved, Level: notice.Info, Text: text, Fields: map[string]any{"plan": 1, "moves": 2, "cause": "test"},
	}
}

func TestGatewaysHearOfOtherNodesAndNotOfThePast(t *testing.T) {
	past, other := posted("x"), posted("x")
	past.Past, past.Relayed = true, true
	other.Node, other.Relayed = "node-2", true
	if got, ok := announced(other); !ok || got.Text != "node-2: x" || got.Kind != notice.KindMoved {
		t.Errorf("%+v", got)
	}
	if got, ok := announced(posted("x")); !ok || got.Text != "x" {
		t.Errorf("%+v", got)
	}
	if got, ok := announced(past); ok {
		t.Errorf("announced: %+v", got)
	}
}

func TestGatewaysThatBeginAreToldWhatIsRecent(t *testing.T) {
	board, now := notice.NewBoard(notice.Config{Node: "n"}), time.Now()
	post := func(text string, ago time.Duration) {
		n := posted(text)
		n.At = now.Add(-ago)
		board.Post(n)
	}
	if recent := recentNotices(board, now); len(recent) != 0 {
		t.Errorf("%v", recent)
	}
	post("old", 31*time.Minute)
	post("less old", 29*time.Minute)
	if recent := recentNotices(board, now); len(recent) != 1 || recent[0].Text != "less old" {
		t.Errorf("%v", recent)
	}
	for i := range 12 {
		post(fmt.Sprint(i), time.Minute)
	}
	if recent := recentNotices(board, now); len(recent) != 10 || recent[0].Text != "2" || recent[9].Text != "11" {
		t.Errorf("%v", recent)
	}
}
