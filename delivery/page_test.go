package delivery_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
)

// A haystack is a collection without the document that is looked for.
type haystack struct {
	snapshot.Source

	reads int // so many until its end
	asked []byte
}

func (h *haystack) Read(_ context.Context, q snapshot.Query) (snapshot.Page, error) {
	if len(h.asked) > 0 && q.From.Data[0] != h.asked[len(h.asked)-1]+1 {
		return snapshot.Page{}, errors.New("it looks again where it has looked")
	}
	h.asked = append(h.asked, q.From.Data[0])
	if len(h.asked) == h.reads {
		return snapshot.Page{}, snapshot.ErrPlaceGone
	}
	return snapshot.Page{}, &snapshot.FurtherError{From: change.Value{Type: q.From.Type, Data: []byte{q.From.Data[0] + 1}}}
}

// A client that makes a place up has MongoDB look through no more keys at a time than a page has,
// at the rate of snapshots, and only for as long as it waits.
func TestPlacesThatAreMadeUpArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		_, last := source.Reach()
		ask := oplog.NewRange(oplog.RangeConfig{Ask: func(context.Context) (gap.Reach, error) { return gap.Reach{First: last, Last: last}, nil }})
		keys := &haystack{reads: 100}
		b := begin(t, source, delivery.Config{Snapshots: keys, SnapshotRate: rate.NewLimiter(snapshot.LocatedKeys, snapshot.LocatedKeys), Range: ask})
		defer b.end()
		program, err := match.Compile(match.Filter{DB: "shop", Coll: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		request := delivery.PageRequest{
			Namespace: change.Namespace{DB: "shop", Coll: "orders"}, Program: program, Account: "tenant", At: last,
			From: change.Value{Type: 2, Data: []byte{0}}, FromHash: make([]byte, change.KeyHashSize), Documents: 1,
		}
		begun := time.Now()
		_, err = b.hub.Page(t.Context(), request)
		if took := time.Since(begun); fault.Of(err) != fault.LogHistoryLost || len(keys.asked) != keys.reads || took < 98*time.Second {
			t.Errorf("%d reads in %s: %v", len(keys.asked), took, err)
		}
		keys.asked = nil
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err = b.hub.Page(ctx, request); err == nil || len(keys.asked) > 11 {
			t.Errorf("%d reads for a client that leaves after 10 s: %v", len(keys.asked), err)
		}
	})
}
