package match_test

import (
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
)

// A filter that can never be true, or not when it seems to be, has a warning; others have none.
func TestDoubtfulFiltersHaveWarnings(t *testing.T) {
	for source, want := range map[string]string{
		`op == "updated"`:                        "never true",
		`op == "insert" && op == "delete"`:       "never true",
		`false`:                                  "never true",
		`op in ["inserted", "changed"]`:          "never true",
		`update.updatedFields.total.net == 3`:    `changed("total.net")`,
		`update.updatedFields["a"]["b"] == 3`:    `changed("a.b")`,
		`has(update.updatedFields.total)`:        "",
		`update.updatedFields["total.net"] == 3`: "",
		`update.updatedFields.total == 3`:        "",
		`op == "create"`:                         "never true",
		`op == "update" && changed("total")`:     "",
		`doc.total.net.more == 3`:                "",
		`op != "delete"`:                         "",
	} {
		p, err := match.Compile(match.Filter{Source: source, Carries: everything()})
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got := p.Warning(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
	p, err := match.Compile(match.Filter{Source: `op == "delete"`, Ops: []change.Op{change.OpInsert}, Carries: everything()})
	if err != nil {
		t.Fatal(err)
	}
	if p.Warning() == "" {
		t.Error("a filter for deletes of a subscription to inserts has no warning")
	}
}

// A subscription that asks for operations which the node does not read is refused, whether it names
// them or its filter does; one that can get others is not.
func TestOperationsThatAreNotReadAreRefused(t *testing.T) {
	carries := everything()
	carries.Without = match.OpsOf(change.OpDelete, change.OpReplace)
	for _, c := range []struct {
		source  string
		ops     []change.Op
		refused bool
	}{
		{"", nil, false},
		{"", []change.Op{change.OpInsert, change.OpDrop}, false},
		{"", []change.Op{change.OpDelete}, true},
		{"", []change.Op{change.OpInsert, change.OpReplace}, true},
		{`op == "delete"`, nil, true},
		{`op in ["delete", "replace"] && doc.a == 1`, nil, true},
		{`op in ["delete", "insert"]`, nil, false},
		{`op != "delete"`, nil, false},
		{`op == "deleted"`, nil, false}, // which is told
	} {
		p, err := match.Compile(match.Filter{Source: c.source, Ops: c.ops, Carries: carries})
		if c.refused != (fault.Of(err) == fault.SessionUnwatched) || !c.refused && err != nil {
			t.Errorf("%q, %v: %v", c.source, c.ops, err)
		}
		if err == nil && (p.Warning() != "") != (c.source == `op == "deleted"`) {
			t.Errorf("%q, %v: %q", c.source, c.ops, p.Warning())
		}
	}
}
