package match_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
)

// large makes the event of a document near MongoDB's limit of 16 MiB: many fields, a long array, a
// long text.
func large() bson.D {
	doc := bson.D{{Key: "_id", Value: 7}, {Key: "first", Value: 1}, {Key: "text", Value: strings.Repeat("a", 2<<20)}}
	list := bson.A{}
	for i := range 200_000 {
		list = append(list, int32(i))
		if i < 50_000 {
			doc = append(doc, bson.E{Key: fmt.Sprintf("f%d", i), Value: int64(i)})
		}
	}
	return append(doc, bson.E{Key: "list", Value: list}, bson.E{Key: "last", Value: 1})
}

// cpuTime returns the CPU time of this process, which, unlike the time that passes, does not depend
// on what else the machine does.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestNoFilterRunsLong(t *testing.T) {
	doc := large()
	e := event("insert", 7, doc, doc)
	lasts := strings.Repeat("doc.last == 2 || ", 200) + "false"
	many := strings.Repeat(" + x", 40)
	for source, want := range map[string]fault.Code{
		`doc.first == 1`:                                                                                  "",
		`doc.last == 1 && 199999 in doc.list`:                                                             "",
		`doc.list.all(a, a >= 0)`:                                                                         fault.FilterCost,
		`doc.list.exists(a, doc.list.exists(b, b < a && a < b))`:                                          fault.FilterCost,
		`doc.exists(a, doc.exists(b, doc[b] == 0.5))`:                                                     fault.FilterCost,
		`size(doc.list.map(a, doc.list)) > 0`:                                                             fault.FilterCost,
		`doc.list.map(a, string(a)) == []`:                                                                fault.FilterCost,
		`doc == before && before == doc && doc == before && before == doc && doc == before`:               fault.FilterCost,
		`[doc.text].map(x, x` + many + `) == []`:                                                          fault.FilterCost,
		`[doc.list].map(x, x` + many + `) == []`:                                                          fault.FilterCost,
		`[[1, 2]].map(x, x` + many + `).map(x, x` + many + `).map(x, x` + many + `) == []`:                fault.FilterCost,
		`[doc.list].all(x, [x, x, x, x, x, x] == [x, x, x, x, x, x])`:                                     fault.FilterCost,
		`[doc.list + [1]].all(x, x == x && x == x && x == x && x == x && x == x)`:                         fault.FilterCost,
		`[doc.list + [1]].all(x, -1 in x || -2 in x || -3 in x || -4 in x || -5 in x)`:                    fault.FilterCost,
		`[doc.text].all(x, ` + strings.Repeat("size(x) != 1 && ", 200) + `true)`:                          fault.FilterCost,
		`[doc.text].all(x, ` + strings.Repeat("x == x && ", 200) + `true)`:                                fault.FilterCost,
		`[doc.text].all(x, ` + strings.Repeat("x >= x && ", 200) + `true)`:                                fault.FilterCost,
		`[doc.text].all(x, ` + strings.Repeat(`!x.contains("b") && `, 150) + `true)`:                      fault.FilterCost,
		`[doc.text].all(x, ` + strings.Repeat(`bytes(string(bytes(x))) != b"" && `, 100) + `true)`:        fault.FilterCost,
		`doc.text.matches("(x+x+)+y")`:                                                                    fault.FilterCost,
		`doc.text.matches("(a|b|c|d)*e")`:                                                                 fault.FilterCost,
		strings.Repeat("doc.text + ", 9) + `doc.text == ""`:                                               fault.FilterCost,
		`[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, doc.list.all(c, c != a + b + 100000000)))`: fault.FilterCost,
		`doc.list.exists(i, doc.list[i] == -1)`:                                                           fault.FilterCost,
		`doc.a == 1 || ` + lasts + ` || size(doc.list) == 5`:                                              fault.FilterCost,
	} {
		p, err := match.Compile(match.Filter{Source: source, Carries: everything()})
		if err != nil {
			t.Errorf("%.80s: %v", source, err)
			continue
		}
		began := cpuTime(t)
		_, err = p.Match(e)
		if took := cpuTime(t) - began; took > 5*time.Second { // milliseconds without the race detector
			t.Errorf("%.80s: took %s of CPU time", source, took)
		}
		if fault.Of(err) != want {
			t.Errorf("%.80s: %v, want %q", source, err, want)
		}
	}
}

// Documents nested deeper than MongoDB stores them are compared up to a bound.
func TestDeepDocumentsAreBounded(t *testing.T) {
	doc := bson.D{}
	for range 150 {
		doc = bson.D{{Key: "a", Value: doc}}
	}
	expect(t, match.Filter{Source: "doc == before", Carries: everything()}, event("update", 7, doc, doc), true, "")
	for range 100 {
		doc = bson.D{{Key: "a", Value: doc}}
	}
	expect(t, match.Filter{Source: "doc == before", Carries: everything()}, event("update", 7, doc, doc), false, "nested too deep")
}
