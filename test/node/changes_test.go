package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
)

// A past is an answer of /v1/changes.
type past struct {
	ID      json.RawMessage `json:"_id"`
	Changes []struct {
		Position, Operation string
		Changed             []string
		Event               json.RawMessage
	}
	Losses []json.RawMessage
	Next   string
}

// changesOf asks for the changes of a document of shop.orders until the node has no more.
func (n *live) changesOf(id, more string) (all past) {
	n.Helper()
	from := ""
	for range 100 {
		resp, text := n.answer(http.DefaultClient, "http://"+n.service.Addr()+"/v1/changes?db=shop&coll=orders&id="+url.QueryEscape(id)+more+from)
		var page past
		if err := json.Unmarshal([]byte(text), &page); err != nil || resp.StatusCode != http.StatusOK {
			n.Fatalf("%s: %s", resp.Status, text)
		}
		page.Changes, page.Losses = append(all.Changes, page.Changes...), append(all.Losses, page.Losses...)
		if all = page; all.Next == "" {
			return all
		}
		from = "&from=" + url.QueryEscape(all.Next)
	}
	n.Fatalf("after 100 answers there is more, and only %d changes", len(all.Changes))
	return all
}

// told returns operations and changed fields in one text.
func (p *past) told() string {
	var words []string
	for _, c := range p.Changes {
		words = append(words, strings.Join(append([]string{c.Operation}, c.Changed...), " "))
	}
	return strings.Join(words, ", ")
}

// change changes a document of shop.orders.
func (r *rig) change(id any, update bson.D) {
	r.Helper()
	if _, err := r.coll("orders").UpdateOne(r.Context(), bson.D{{Key: "_id", Value: id}}, update); err != nil {
		r.Fatal(err)
	}
}

// What the retained log and the oplog have of one document comes once and in order, whatever the
// type is in which its _id was written, and in however many answers. Changes of others do not come.
func TestChangesOfADocument(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	r := newRig(t, devmongo.Config{}, "STREAMER_RETENTION_STORE=file://"+store, "STREAMER_RETENTION_INTERVAL=1s")
	n := r.begin()
	n.until("the retained log has begun", func() bool {
		r.elsewhere(1)
		return segments(t, store) > 0
	})
	r.insert(int64(5), "5", 6)
	for i := range 20 {
		r.change(6, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: i}}}})
	}
	r.change(5, bson.D{{Key: "$set", Value: bson.D{{Key: "b", Value: 1}, {Key: "a.c", Value: 1}}}})
	r.change(5.0, bson.D{{Key: "$unset", Value: bson.D{{Key: "b", Value: ""}}}})
	r.change("5", bson.D{{Key: "$set", Value: bson.D{{Key: "text", Value: true}}}})
	const want = "insert, update a.c b, update b"
	for _, id := range []string{"5", "5.0", `{"$numberLong":"5"}`, `{"$numberDecimal":"5.00"}`} {
		if got := n.changesOf(id, ""); got.told() != want || len(got.Losses) > 0 {
			t.Errorf("%s: %s, %s", id, got.told(), got.Losses)
		}
	}
	paged := n.changesOf("5", "&limit=1")
	if paged.told() != want {
		t.Errorf("one by one: %s", paged.told())
	}
	for _, c := range paged.Changes {
		var e struct {
			ID  string
			Key string
		}
		if err := json.Unmarshal(c.Event, &e); err != nil || e.ID != c.Position || e.Key != "5" {
			t.Errorf("%s: %v", c.Event, err)
		}
	}
	for id, want := range map[string]string{`"5"`: "insert, update text", "nobody": ""} {
		if got := n.changesOf(id, ""); got.told() != want {
			t.Errorf("%s: %s", id, got.told())
		}
	}
	begin := n.retains()
	n.stopped()
	r.server.TruncateOplogBefore(begin)
	n = r.begin()
	if _, err := r.coll("orders").DeleteOne(r.Context(), bson.D{{Key: "_id", Value: 5}}); err != nil {
		t.Fatal(err)
	}
	if got := n.changesOf("5", ""); got.told() != want+", delete" || len(got.Losses) > 0 {
		t.Errorf("beyond the oplog: %s, %s", got.told(), got.Losses)
	}
}

// The changes of a document are read with the rights of a reader of its namespace.
func TestChangesOfADocumentNeedItsRights(t *testing.T) {
	t.Parallel()
	identities := filepath.Join(t.TempDir(), "identities")
	enlist(t, identities, "own name=own namespace=shop.orders", "other name=other namespace=shop.people")
	r := newRig(t, devmongo.Config{})
	r.insert(1)
	n := r.beginWith(nil, "STREAMER_ACCESS_IDENTITIES_FILE="+identities)
	const path = "/v1/changes?db=shop&coll=orders&id=1"
	for token, want := range map[string]int{"": http.StatusUnauthorized, "other": http.StatusForbidden, "own": http.StatusOK} {
		header := []string{}
		if token != "" {
			header = []string{"Authorization", "Bearer " + token}
		}
		if resp, text := n.send(http.MethodGet, "http://"+n.service.Addr()+path, header...); resp.StatusCode != want {
			t.Errorf("%q: %s, %s", token, resp.Status, text)
		}
	}
	for _, query := range []string{"", "&id=", "&id=[1]", "&id=1&limit=0", "&id=1&start=yesterday", "&id=1&from=x"} {
		resp, text := n.send(http.MethodGet, "http://"+n.service.Addr()+"/v1/changes?db=shop&coll=orders"+query, "Authorization", "Bearer own")
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, fmt.Sprint(fault.SessionBadRequest)) && !strings.Contains(text, fmt.Sprint(fault.SessionBadPosition)) {
			t.Errorf("%s: %s, %s", query, resp.Status, text)
		}
	}
}
