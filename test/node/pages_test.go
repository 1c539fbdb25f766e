package node

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
)

// Pages go on by a short next however long the _ids of the documents are, and say that a client
// must start over where the document at which a page begins is gone.
func TestPagesGoOnWhateverTheIDs(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"4.4", "8.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{Release: release})
			long := strings.Repeat("é", 12<<10)
			ids := []any{
				bson.MinKey{}, 1, "a", long, long + "a", long + "b", long[:2*1000], bson.D{{Key: "a", Value: long}}, bson.D{{Key: "a", Value: long + "x"}},
				bson.Binary{Data: []byte(long)}, bson.Binary{Data: []byte(long + "x")}, bson.Binary{Data: []byte("x")}, true,
			}
			r.insert(ids...)
			n := r.beginWith(nil)
			seen, next := map[string]bool{}, ""
			for more := true; more; more = next != "" {
				if len(next) > 2<<10 {
					t.Fatalf("next has %d bytes", len(next))
				}
				query := url.Values{"db": {"shop"}, "coll": {"orders"}, "limit": {"1"}}
				if next != "" {
					query.Set("from", next)
				}
				resp, text := n.answer(http.DefaultClient, "http://"+n.service.Addr()+"/v1/snapshot?"+query.Encode())
				var page struct {
					Documents []any
					Keys      []string
					Next      string
				}
				if err := json.Unmarshal([]byte(text), &page); err != nil || resp.StatusCode != http.StatusOK || len(page.Keys) != 1 || seen[page.Keys[0]] {
					t.Fatalf("%s: %d keys, %v, %.300s", resp.Status, len(page.Keys), err, text)
				}
				seen[page.Keys[0]], next = true, page.Next
			}
			if len(seen) != len(ids) {
				t.Errorf("%d documents of %d", len(seen), len(ids))
			}
		})
	}
}

// A next of another collection, or of a document that is gone, is no place: the client starts over.
func TestPageAtADocumentThatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{Release: "4.4"})
	long := strings.Repeat("x", 4<<10)
	r.insert("a", long)
	n := r.beginWith(nil)
	_, text := n.answer(http.DefaultClient, "http://"+n.service.Addr()+"/v1/snapshot?db=shop&coll=orders&limit=1")
	var page struct{ Next string }
	if err := json.Unmarshal([]byte(text), &page); err != nil || page.Next == "" {
		t.Fatalf("%v, %s", err, text)
	}
	if _, err := r.coll("orders").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: long}}); err != nil {
		t.Fatal(err)
	}
	if status, code := n.refused("/v1/snapshot?db=shop&coll=orders&limit=1&from=" + page.Next); status != http.StatusGone || code != fault.LogHistoryLost {
		t.Errorf("%d, %s", status, code)
	}
}
