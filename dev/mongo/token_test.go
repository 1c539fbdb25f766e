package devmongo_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// A server of release 7.0 has taken over, or one of 6.0: streams that are opened again go on with
// tokens of its version after one of the other.
func TestTokensChangeTheirVersion(t *testing.T) {
	for _, release := range []string{"4.4", "6.0", "7.0", "8.0"} {
		for _, versions := range [][2]int{{1, 2}, {2, 1}} {
			srv, client := start(t, devmongo.Config{Release: release})
			c := client.Database("a").Collection("x")
			version := func(token bson.Raw) string { return text(token, "_data")[18:22] }
			digits := func(version int) string { return fmt.Sprintf("2B%02X", 2*version) }
			srv.SetTokenVersion(versions[0])
			s := watch(t, client, nil)
			insert(t, c, d("_id", 1), d("_id", 2))
			first := s.next()
			srv.SetTokenVersion(versions[1])
			if got := version(s.next().Lookup("_id").Document()); got != digits(versions[0]) {
				t.Errorf("%s %v: an open stream goes over to version %s", release, versions, got)
			}
			again := watch(t, client, nil, resumeAfter(first.Lookup("_id").Document()))
			second := again.next()
			if got := version(second.Lookup("_id").Document()); got != digits(versions[1]) || second.Lookup("documentKey", "_id").Int32() != 2 {
				t.Errorf("%s %v: resumed with %s", release, versions, second)
			}
			if err := c.Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			if drop := again.next(); text(drop, "operationType") != "drop" || version(drop.Lookup("_id").Document()) != digits(versions[1]) {
				t.Errorf("%s %v: %s", release, versions, drop)
			}
			again.none()
			if got := version(again.ResumeToken()); got != digits(versions[1]) {
				t.Errorf("%s %v: the post-batch token is of version %s", release, versions, got)
			}
		}
	}
}

func TestRepliesHaveAtMostSoManyEvents(t *testing.T) {
	_, client := start(t, devmongo.Config{Adjust: func(p *devmongo.Profile) { p.MostEvents = 2 }})
	s := watch(t, client, nil)
	insert(t, client.Database("a").Collection("x"), d("_id", 1), d("_id", 2), d("_id", 3), d("_id", 4), d("_id", 5))
	var batches []int
	for range 5 {
		s.next()
		batches = append(batches, s.RemainingBatchLength())
	}
	equal(t, batches, []int{1, 0, 1, 0, 0})
}

// Each shard counts the places in its part of a transaction, so that events of different shards
// have tokens with equal heads (recordings 4.4-sharded/22). The router tells them in the order of
// their tokens.
func TestShardsHaveTheirOwnPlacesInATransaction(t *testing.T) {
	_, client := router(t, "7.0", func(p *devmongo.Profile) { p.NoopEvery = 5 * time.Millisecond })
	c := client.Database("a").Collection("x")
	s := watch(t, client, nil)
	_, err := session(t, client).WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		for _, id := range []int{5, 2, 3, 4, 6} { // odd _ids are on the second shard
			if _, err := c.InsertOne(ctx, d("_id", id)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var tokens, heads []string
	var got []int32
	for range 5 {
		e := s.next()
		got, tokens = append(got, e.Lookup("documentKey", "_id").Int32()), append(tokens, text(e, "_id", "_data"))
		head, _, _ := strings.Cut(tokens[len(tokens)-1], "6E5A10")
		heads = append(heads, head)
	}
	equal(t, got, []int32{2, 5, 3, 4, 6})
	if !slices.IsSorted(tokens) || heads[0] != heads[1] || heads[2] != heads[3] || heads[1] == heads[2] || heads[4] == heads[3] {
		t.Errorf("tokens %v", tokens)
	}
	for i, token := range tokens[:4] {
		again := watch(t, client, nil, resumeAfter(bson.Raw(mustMarshal(t, d("_data", token)))))
		if next := again.next(); text(next, "_id", "_data") != tokens[i+1] {
			t.Errorf("after event %d comes %s", i, next)
		}
	}
}

func mustMarshal(t *testing.T, doc bson.D) []byte {
	t.Helper()
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestPostBatchTokensOfRelease90(t *testing.T) {
	for _, refusal := range []int{260, 280} {
		_, client := start(t, devmongo.Config{Release: "9.0", Adjust: func(p *devmongo.Profile) { p.ControlTokens = refusal }})
		x, y := client.Database("a").Collection("x"), client.Database("b").Collection("y")
		watchX := []bson.D{d("$match", d("ns.db", "a"))}
		s := watch(t, client, watchX)
		insert(t, x, d("_id", 1))
		first := s.next()
		insert(t, y, d("_id", 1))
		s.none()
		token := s.ResumeToken()
		insert(t, x, d("_id", 2))
		if _, err := tryWatch(t, client, watchX, resumeAfter(token)); code(err) != refusal {
			t.Errorf("the token of a control event is refused with %d, want %d", code(err), refusal)
		}
		back := watch(t, client, watchX, startAt(clusterTime(first)), func(o *options.ChangeStreamOptionsBuilder) { o.SetBatchSize(0) })
		if digits := text(back.ResumeToken(), "_data"); digits[2:10] >= fmt.Sprintf("%08X", clusterTime(first)>>32) {
			t.Errorf("the first token %s does not go back", digits)
		}
	}
}
