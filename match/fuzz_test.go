package match_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
)

// FuzzCompile compiles anything. It takes bounded time and memory whatever the text is. What is
// refused has a code; what is not is evaluated, alone and through an index, which must agree.
func FuzzCompile(f *testing.F) {
	for _, source := range []string{
		"", "doc.a == 1", `key._id == ObjectId("000000000000000000000001") && op in ["insert", "update"]`, `doc.items.exists(i, i.price > 100.5 && has(i.sku))`,
		`ns.db == "shop" || ns.coll != "orders"`, `doc["a"].b[0] >= decimal("1.50")`, `size(doc.tags) > 2 ? "x" in doc.tags : doc.tags == null`, "doc.a.matches('^[a-z]+$')",
		`before.total < doc.total && "status" in update.updatedFields`, "!(doc.a in [1, 2.0, null])", "((((((((true))))))))", "doc.a == timestamp('2024-01-01T00:00:00Z')", "doc.exists(k, k.startsWith('x'))",
		"[1, 2].map(x, x * 2).exists(x, x == doc.a)", "type(doc.a) == string", "\xff\x00", "doc.a.b.c.d.e.f == {'a': [1, {}]}",
		`{ObjectId("000000000000000000000001"): 1} == {key._id: 1}`, `{b"x": 1, 1.5: 2, null: 3}[doc.a] == 1`, "{doc.a: 1} == {before.a: 1}", "doc.a == key.a || key.a == duration('1s') || [doc.a] == [int]",
		"{'a': doc.a}[doc.b] in {doc.a: 1}", "[doc.a, doc.b][doc.c] + doc.a == doc.b", "timestamp(doc.a) - timestamp(doc.b) > duration('1h')",
		`doc.a.matches("x{1000}x{1000}")`, `doc.a.matches("(((a{10}){10}){10})")`, `doc.a.matches("^\\pL{300}$")`, `doc.a.matches("(?i)[B-\U0001e943][B-\x{1e943}]")`,
		`matches(doc.a, "(?s)(?mi:(a|b*)+?){2,5}")`, `[1,2].all(a, [1,2].all(b, [1,2].exists_one(c, a + b + c == doc.a)))`, strings.Repeat("doc.a == 1 || ", 200) + "false",
		strings.Repeat("(", 60) + "true" + strings.Repeat(")", 60), "[" + strings.Repeat("[", 45) + "1" + strings.Repeat("]", 45) + "] == doc.a", "{" + strings.Repeat("'a': 1,", 300) + "'b': doc.a} == doc.b",
	} {
		f.Add(source)
	}
	events := fuzzEvents()
	f.Fuzz(func(t *testing.T, source string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begun := time.Now()
		p, err := match.Compile(match.Filter{Source: source, Carries: everything()})
		took := time.Since(begun)
		runtime.ReadMemStats(&after)
		// Alone it takes some 20 ms at most.
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 48<<20 || took > 3*time.Second {
			t.Fatalf("%q: %s, %d bytes", source, took, allocated)
		}
		if err == nil && p.Size() > 2<<20 {
			t.Fatalf("%q: takes %d bytes", source, p.Size())
		}
		if err != nil {
			if code := fault.Of(err); code != fault.FilterInvalid && code != fault.FilterTooLarge {
				t.Fatalf("%q: %v", source, err)
			}
			return
		}
		w := &world{programs: map[match.ID]*match.Program{1: p}}
		w.index.Add(1, p)
		for i := range events {
			w.agree(t, &events[i])
		}
	})
}

// fuzzEvents are some events of each kind.
func fuzzEvents() []change.Event {
	n := 0
	d := dice(func(limit int) int {
		n = n*1103515245 + 12345
		return (n >> 16 & 0x7FFF) % limit
	})
	events := make([]change.Event, 24)
	for i := range events {
		events[i] = d.event()
	}
	return events
}

// FuzzIndexAgreesWithFilters lets the fuzzer choose filters and events.
func FuzzIndexAgreesWithFilters(f *testing.F) {
	f.Add([]byte("0123456789"))
	f.Add([]byte("an index and all filters, one by one, must say the same of every event, whatever the filters are"))
	f.Fuzz(func(t *testing.T, choices []byte) {
		d := dice(func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			c := int(choices[0])
			choices = choices[1:]
			return c % n
		})
		w := &world{programs: make(map[match.ID]*match.Program)}
		for round := 0; len(choices) > 0 && round < 20; round++ {
			w.churn(t, d, 3)
			e := d.event()
			w.agree(t, &e)
		}
	})
}
