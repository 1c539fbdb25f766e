package match_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
)

// A spender grants everything and counts what it costs.
type spender struct{ units int }

func (s *spender) Grant(match.ID) int                   { return match.MaxCost }
func (s *spender) Spent(_ match.ID, units int, _ error) { s.units += units }

// costlyFilters are different in what they spend.
func costlyFilters() map[string]string {
	ten := "[1,2,3,4,5,6,7,8,9,10]"
	return map[string]string{
		"ordinary":       `doc.items.exists(i, i.price > 10.0 && i.sku.startsWith("sku-")) || doc.note.contains("room")`,
		"macros":         ten + ".all(a, " + ten + ".all(b, " + ten + ".all(c, a + b + c > 0))) && doc.a == doc.b",
		"macros on doc":  `doc.list.all(a, doc.list.all(b, a + b >= 0))`,
		"walks":          `doc.list.all(a, a >= 0) || doc.a == doc.b`,
		"pattern":        `doc.text.matches("(a|b|c|d)*e") || doc.a == doc.b`,
		"text":           `doc.text.contains("b") || doc.text + doc.text == doc.text`,
		"simple":         `doc.last == 2 || doc.last == 3 || doc.last == 4`,
		"simple on many": strings.Repeat("doc.last == 2 || ", 100) + "false",
	}
}

func costlyEvent() *change.Event {
	doc := bson.D{{Key: "_id", Value: 7}, {Key: "text", Value: strings.Repeat("abcd", 1000)}, {Key: "note", Value: "please ring twice"}}
	list, items := bson.A{}, bson.A{}
	for i := range 100 {
		list = append(list, int32(i))
		doc = append(doc, bson.E{Key: fmt.Sprintf("f%d", i), Value: int64(i)})
	}
	for range 3 {
		items = append(items, bson.D{{Key: "sku", Value: "SKU-1"}, {Key: "price", Value: 20.0}, {Key: "count", Value: int32(1)}})
	}
	doc = append(doc, bson.E{Key: "list", Value: list}, bson.E{Key: "items", Value: items}, bson.E{Key: "last", Value: 1})
	return event("insert", 7, doc, doc)
}

// BenchmarkCost is what a unit is: about 10 ns, whatever a filter spends it for.
func BenchmarkCost(b *testing.B) {
	e := costlyEvent()
	for name, source := range costlyFilters() {
		b.Run(name, func(b *testing.B) {
			p, err := match.Compile(match.Filter{Source: source, Carries: everything()})
			if err != nil {
				b.Fatal(err)
			}
			var x match.Index
			x.Add(1, p)
			s := new(spender)
			for b.Loop() {
				x.Match(e, nil, s)
			}
			b.ReportMetric(float64(s.units)/float64(b.N), "units/op")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.units), "ns/unit")
		})
	}
}

// heapInUse returns what is in use after a collection.
func heapInUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestSizeIsWhatAProgramTakes(t *testing.T) {
	long := func(part, end string) string { return strings.Repeat(part, min(4000/len(part), 240)) + end }
	if _, err := match.Compile(match.Filter{Source: "doc.a == doc.b", Carries: everything()}); err != nil { // makes what all share
		t.Fatal(err)
	}
	for name, source := range map[string]string{
		"equal":           `key._id == %d`,
		"in":              `doc.city in ["a%d", "b", "nowhere"]`,
		"range":           `doc.total >= %d && doc.total < 7`,
		"field and macro": `doc.customer == "%d" && doc.items.exists(i, i.price > 10.0 && i.sku.startsWith("sku-"))`,
		"contains":        `doc.note.contains("room %d")`,
		"arithmetic":      `doc.status != "open" || doc.total > doc.limit + %d`,
		"macros":          `doc.a.exists(a, doc.b.exists(b, doc.c.exists(c, a + b + c == %d)))`,
		"pattern":         `doc.note.matches("^room [0-9]+-%d$")`,
		"long pattern":    `doc.note.matches("%d(abc|de){50}x{300}")`,
		"classes":         `doc.note.matches("^(%d\\pL{90}|x)$")`,
		"loose classes":   `doc.note.matches("%d\\pL{200}|\\PL{100}")`,
		"many patterns":   `doc.a == %d || ` + long(`doc.n.matches("a{50}b") || `, "false"),
		"many classes":    `doc.a == %d || ` + strings.Repeat(`doc.n.matches("^\\pL{2}$") || `, 40) + "false",
		"many nodes":      `doc.a == %d || ` + strings.Repeat(`doc.b + 1 < doc.c || `, 150) + "false",
		"many equal":      `doc.a == %d || ` + long(`doc.b == 1 || `, "false"),
		"a list":          `doc.a == %d || doc.b in [doc.c, ` + long("1,", "2]"),
		"a constant list": `doc.a != %d && doc.b in [` + long("1,", "2]"),
		"texts":           `doc.a == %d || [` + long(`"abcdefghijklmnopqrstuvwxyz0123456789",`, `"x"] == doc.b`),
		"a map":           `doc.a == %d || {"a": doc.b` + strings.Repeat(`,"b": 1`, 400) + `} == doc.c`,
		"macros in line":  `doc.a == %d || ` + strings.Repeat(`doc.b.all(x, x > 1) || `, 100) + "false",
	} {
		t.Run(name, func(t *testing.T) {
			const n = 40
			programs, estimate := make([]*match.Program, 0, n), 0
			var x match.Index
			before := heapInUse()
			for i := range n {
				p, err := match.Compile(match.Filter{Source: fmt.Sprintf(source, i), Carries: everything()})
				if err != nil {
					t.Fatal(err)
				}
				x.Add(match.ID(i), p)
				programs, estimate = append(programs, p), estimate+p.Size()
			}
			taken := heapInUse() - before
			t.Logf("%d bytes, estimated %d: %.2f", taken/n, estimate/n, float64(estimate)/float64(taken))
			if estimate > 3*taken || taken > 3*estimate {
				t.Errorf("%d bytes each, estimated %d", taken/n, estimate/n)
			}
			runtime.KeepAlive(programs)
		})
	}
}

// What is too large is refused before it is compiled: the estimate of the parser's work is all that
// it costs.
func TestOversizedFilterIsRefusedBeforeItIsCompiled(t *testing.T) {
	for name, source := range map[string]string{
		"repetitions":      `doc.a.matches("` + strings.Repeat("x{1000}", 70) + `")`,
		"nested":           `doc.a.matches("(((a{10}){10}){10}){1,2}` + strings.Repeat("(b{30}){30}", 30) + `")`,
		"on a constant":    `"a".matches("` + strings.Repeat("x{1000}", 70) + `")`,
		"the function":     `matches(doc.a, "` + strings.Repeat("x{1000}", 70) + `")`,
		"a long pattern":   `doc.a.matches("` + strings.Repeat("x{1000}", 500) + `")`,
		"in a macro":       `doc.a.exists(a, a.matches("` + strings.Repeat("x{1000}", 70) + `"))`,
		"folded":           `doc.a.matches("(?i)` + strings.Repeat("[B-\U0001e943]", 60) + `")`,
		"folded escapes":   `doc.a.matches("(?s)(?mi:` + strings.Repeat(`[B-\x{1e943}]`, 30) + `)")`,
		"many errors":      strings.Repeat(`doc.a.matches("^\pL{300}$") || `, 100) + "false",
		"classes":          strings.Repeat(`doc.a.matches("^\\pL{300}$") || `, 100) + "false",
		"many patterns":    strings.Repeat(`doc.a.matches("x{900}") || `, 140) + "false",
		"beyond one limit": `doc.a.matches("(?i)` + strings.Repeat("x", 600) + `")`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := match.Compile(match.Filter{Source: source, Carries: everything()}); fault.Of(err) != fault.FilterInvalid && fault.Of(err) != fault.FilterTooLarge {
				t.Error(err)
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}

func TestEqualFiltersShareAProgram(t *testing.T) {
	c := match.NewCompiler(10_000)
	compile := func(f match.Filter) *match.Program {
		t.Helper()
		p, err := c.Compile(f)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	f := match.Filter{Source: "doc.a == doc.b", DB: "d", Coll: "c", Ops: []change.Op{change.OpInsert}, Carries: everything()}
	first := compile(f)
	same := f
	same.Ops = []change.Op{change.OpInsert}
	if compile(same) != first {
		t.Error("an equal filter is compiled again")
	}
	for name, differ := range map[string]func(*match.Filter){
		"source":  func(f *match.Filter) { f.Source += " " },
		"db":      func(f *match.Filter) { f.DB = "e" },
		"coll":    func(f *match.Filter) { f.Coll = "e" },
		"ops":     func(f *match.Filter) { f.Ops = nil },
		"deletes": func(f *match.Filter) { f.Deletes = match.DeletesNone },
		"carries": func(f *match.Filter) { f.Carries.Before = false },
	} {
		other := f
		differ(&other)
		if compile(other) == first {
			t.Errorf("with another %s it has the same program", name)
		}
	}
	for i := range 100 { // more than is remembered
		compile(match.Filter{Source: fmt.Sprintf("doc.a == doc.b + %d", i), Carries: everything()})
	}
	if _, known := c.Known(f); known {
		t.Error("it is remembered for ever")
	}
	if _, err := c.Compile(match.Filter{Source: "doc."}); fault.Of(err) != fault.FilterInvalid {
		t.Error(err)
	}
}
