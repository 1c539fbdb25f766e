package delivery

import (
	"testing"

	"github.com/mongostream/streamer/change"
)

// A loss in place of two contains both, whichever ends later.
func TestJoinedLossesContainBoth(t *testing.T) {
	at := func(i uint32) change.Position { return change.At(change.Timestamp{T: 1, I: i}) }
	lost := appendLoss(nil, Loss{From: at(10), To: at(90), Namespaces: []string{"shop.orders"}})
	lost = appendLoss(lost, Loss{From: at(5), To: at(20)})
	for i := range uint32(maxLost - 1) {
		lost = appendLoss(lost, Loss{From: at(100 + i), To: at(101 + i)})
	}
	if both := lost[0]; len(lost) != maxLost || both.From.Compare(at(5)) != 0 || both.To.Compare(at(90)) != 0 || both.Namespaces != nil {
		t.Errorf("%d losses, the first is %+v", len(lost), both)
	}
}
