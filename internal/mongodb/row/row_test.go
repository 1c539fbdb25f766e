package row

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/devmongo/devmongotest"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newKeeper(t *testing.T) *Keeper {
	t.Helper()
	c := mongodbtest.Dial(t, devmongotest.URI(t))
	return NewKeeper(c.Driver().Database(mongodbtest.Database(t, c)).Collection("c.rows"), c.ServerTime)
}

func rowAt(event int) checkpoint.Row {
	return checkpoint.Row{
		Gateway: "gw/1", Process: "p", Started: time.Unix(1_700_000_000, 0).UTC(), Partitions: 4,
		Base: checkpointtest.Event(event), SeenAt: time.Now().Round(0).UTC(),
	}
}

// textOf returns a row in the form in which it is stored.
func textOf(t *testing.T, r checkpoint.Row) string {
	t.Helper()
	text, err := record.EncodeRow(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documentOf returns a document with a row that was saved then.
func documentOf(gateway string, seen time.Time, text string) bson.D {
	return bson.D{{Key: "_id", Value: gateway}, {Key: "seen", Value: seen}, {Key: "row", Value: text}}
}

func TestRowThatArrivesLateUndoesNothing(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("as the first %t", first), func(t *testing.T) {
			k := newKeeper(t)
			if !first {
				if err := k.SaveRow(t.Context(), rowAt(10)); err != nil {
					t.Fatal(err)
				}
			}
			last, err := k.find(t.Context(), "gw/1")
			if err != nil || (last.text == "") != first {
				t.Fatalf("%q, %v", last.text, err)
			}
			stands := rowAt(30)
			if err := k.SaveRow(t.Context(), stands); err != nil {
				t.Fatal(err)
			}
			saved, err := k.replace(t.Context(), "gw/1", textOf(t, rowAt(20)), last.text)
			if saved || err != nil {
				t.Errorf("saved over a row that it had not looked at: %t, %v", saved, err)
			}
			if got, ok, err := k.Row(t.Context(), "gw/1"); err != nil || !ok || got.Base.Compare(stands.Base) != 0 {
				t.Errorf("the gateway stands at %s, %t, %v", got.Base, ok, err)
			}
		})
	}
}

func TestDocumentsOfAnyShapeHarmNoOther(t *testing.T) {
	k := newKeeper(t)
	if err := k.SaveRow(t.Context(), rowAt(10)); err != nil {
		t.Fatal(err)
	}
	strange := []bson.D{
		{{Key: "_id", Value: 4711}, {Key: "seen", Value: time.Now()}, {Key: "row", Value: textOf(t, rowAt(10))}},
		{{Key: "_id", Value: bson.D{{Key: "gateway", Value: "composite"}}}, {Key: "row", Value: "{}"}},
		{{Key: "_id", Value: "bare"}},
		{{Key: "_id", Value: "typed"}, {Key: "seen", Value: "yesterday"}, {Key: "row", Value: 7}},
	}
	if _, err := k.rows.InsertMany(t.Context(), strange); err != nil {
		t.Fatal(err)
	}
	rows, err := k.Rows(t.Context())
	if len(rows) != 1 || rows[0].Gateway != "gw/1" || fault.Of(err) != fault.CheckpointCorrupt {
		t.Fatalf("%+v, %v", rows, err)
	}
	for _, name := range []string{"4711", "composite", "bare", "typed"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("nothing is said of %s: %v", name, err)
		}
	}
	for _, name := range []string{"bare", "typed"} {
		if _, ok, err := k.Row(t.Context(), name); ok || fault.Of(err) != fault.CheckpointCorrupt {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
		if err := k.DeleteRow(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if err := k.SaveRow(t.Context(), rowAt(20)); err != nil {
		t.Error(err)
	}
}

func TestRowThatIsRenewedIsNotDropped(t *testing.T) {
	k := newKeeper(t)
	first, renewed := rowAt(10), rowAt(20)
	renewed.SeenAt = first.SeenAt.Add(time.Second)
	other := first
	other.Gateway = "gw/2"
	for _, r := range []checkpoint.Row{first, other} {
		if err := k.SaveRow(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	past := bson.D{{Key: "$set", Value: bson.D{{Key: "seen", Value: time.Now().Add(-time.Hour)}}}} // the server's clock has no less than a millisecond
	if _, err := k.rows.UpdateMany(t.Context(), bson.D{}, past); err != nil {
		t.Fatal(err)
	}
	cursor, err := k.rows.Find(t.Context(), bson.D{}, options.Find().SetProjection(bson.D{{Key: "seen", Value: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var found []bson.Raw
	if err := cursor.All(t.Context(), &found); err != nil || len(found) != 2 {
		t.Fatalf("%d documents, %v", len(found), err)
	}
	if err := k.SaveRow(t.Context(), renewed); err != nil {
		t.Fatal(err)
	}
	if err := k.deleteUnchanged(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	rows, err := k.Rows(t.Context())
	for i := range rows {
		rows[i].Age = 0
	}
	if err != nil || !cmp.Equal(rows, []checkpoint.Row{renewed}) {
		t.Errorf("%+v are left, %v", rows, err)
	}
}

func TestListingDropsWhatIsTooMany(t *testing.T) {
	k := newKeeper(t)
	documents, now := make([]bson.D, checkpoint.MaxRows+3), time.Now()
	for n := range documents {
		r := rowAt(n)
		r.Gateway = fmt.Sprintf("gw/%05d", n)
		documents[n] = documentOf(r.Gateway, now.Add(time.Duration(n)*time.Millisecond), textOf(t, r))
	}
	if _, err := k.rows.InsertMany(t.Context(), documents); err != nil {
		t.Fatal(err)
	}
	if rows, err := k.Rows(t.Context()); err != nil || len(rows) != checkpoint.MaxRows || rows[0].Gateway != "gw/00003" {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

func TestUnreadableRowIsDroppedWithTheOld(t *testing.T) {
	k := newKeeper(t)
	old := documentOf("gw/old", time.Now().Add(-checkpoint.RowLife-time.Hour), "not a row")
	if _, err := k.rows.InsertOne(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if rows, err := k.Rows(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
	if n, err := k.rows.CountDocuments(t.Context(), bson.D{}); err != nil || n != 0 {
		t.Errorf("%d documents are left, %v", n, err)
	}
}
