package access

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const exampleRoster = `
# Gateways of the shop.
token   sha256:A665A45920422F9D417E4867EFDC4FB8A04A1F3FFF1FA07E998E86F7F7A27AE3  name=billing namespace=shop.* namespace=crm.orders   # 123
token sha256:b3a8e0e1f9ab1bfe3a36f231f676f78bb30a519d2b21e6c530c0eee8ebb4a5d0 name=billing namespace=shop.* namespace=crm.orders
subject "CN=gw\\,1,O=\"Shop\"" name="gateway one" "namespace=shop.big sales" max_subscriptions=5 events_per_second=10 bytes_per_second=1000 max_sessions=2 max_connections=3 max_notices=1 starts_per_second=4
`

func TestRosterIsRead(t *testing.T) {
	r, err := parseRoster(exampleRoster, true, false)
	if err != nil {
		t.Fatal(err)
	}
	billing := &Identity{Name: "billing", Namespaces: []string{"shop.*", "crm.orders"}}
	ignore := cmpopts.IgnoreUnexported(Identity{})
	for _, token := range []string{"123", "456"} {
		if diff := cmp.Diff(billing, r.byToken(token), ignore); diff != "" {
			t.Errorf("%s: %s", token, diff)
		}
	}
	for _, token := range []string{"", "12", "1234", "A665A45920422F9D417E4867EFDC4FB8A04A1F3FFF1FA07E998E86F7F7A27AE3"} {
		if i := r.byToken(token); i != nil {
			t.Errorf("%q is %+v", token, i)
		}
	}
	expires := time.Unix(1e9, 0)
	want := &Identity{
		Name: "gateway one", Namespaces: []string{"shop.big sales"}, MaxSubscriptions: 5, EventsPerSecond: 10, BytesPerSecond: 1000, Expires: expires,
		MaxSessions: 2, MaxConnections: 3, MaxNotices: 1, StartsPerSecond: 4,
	}
	if diff := cmp.Diff(want, r.bySubject(GRPC, `CN=gw\,1,O="Shop"`, expires), ignore); diff != "" {
		t.Error(diff)
	}
	if i := r.bySubject(GRPC, "CN=gw", expires); i != nil {
		t.Errorf("a stranger is %+v", i)
	}
}

func TestRosterThatIsWrongIsRefused(t *testing.T) {
	const secret = "s3cret-token-in-the-clear"
	hash := Hash("x")
	tests := map[string]struct{ text, want string }{
		"empty":                  {"", "nobody could connect"},
		"only comments":          {"# token\n\n", "nobody could connect"},
		"token in the clear":     {"token " + secret + " name=a namespace=*", "line 1: a token is written as"},
		"clear after the prefix": {"token sha256:" + secret + " name=a namespace=*", "line 1: a token is written as"},
		"hash too short":         {"token " + hash[:60] + " name=a namespace=*", "line 1: a token is written as"},
		"hash too long":          {"token " + hash + "00 name=a namespace=*", "line 1: a token is written as"},
		"hash without its name":  {"token " + strings.TrimPrefix(hash, hashPrefix) + " name=a namespace=*", "line 1: a token is written as"},
		"key alone":              {"\ntoken", "line 2: must begin with"},
		"other proof":            {"password " + secret + " name=a namespace=*", "must begin with token or subject"},
		"secret behind":          {"token " + hash + " " + secret + " name=a", "key=value"},
		"unknown key":            {"token " + hash + " name=a namespace=* " + secret + "=1", "unknown key"},
		"no name":                {"token " + hash + " namespace=*", "name must have"},
		"empty name":             {"token " + hash + " name= namespace=*", "name must have"},
		"name twice":             {"token " + hash + " name=a name=b namespace=*", "duplicate"},
		"no namespace":           {"token " + hash + " name=a", "no namespace is allowed"},
		"namespace of a slip":    {"token " + hash + " name=a namespace=shop", "must be db.coll"},
		"star as a prefix":       {"token " + hash + " name=a namespace=shop.ord*", "must be db.coll"},
		"star as a database":     {"token " + hash + " name=a namespace=*.orders", "must be db.coll"},
		"namespace without coll": {"token " + hash + " name=a namespace=shop.", "must be db.coll"},
		"limit is no number":     {"token " + hash + " name=a namespace=* max_subscriptions=many", "whole number"},
		"limit below zero":       {"token " + hash + " name=a namespace=* max_subscriptions=-1", "between 0"},
		"limit beyond all":       {"token " + hash + " name=a namespace=* bytes_per_second=9000000000000000000", "between 0"},
		"token twice":            {"token " + hash + " name=a namespace=*\ntoken " + hash + " name=b namespace=*", "line 2: duplicate token"},
		"one name, other rights": {"token " + hash + " name=a namespace=*\ntoken " + Hash("y") + " name=a namespace=x.y", `line 2: "a" has other rights`},
		"one name, other limits": {"token " + hash + " name=a namespace=*\nsubject CN=a name=a namespace=* max_subscriptions=1", `line 2: "a" has other rights`},
		"subject twice":          {"subject CN=a name=a namespace=*\nsubject CN=a name=b namespace=*", "line 2: duplicate subject"},
		"empty subject":          {`subject "" name=a namespace=*`, "the subject is empty"},
		"open quote":             {`token ` + hash + ` name="a namespace=*`, "not closed"},
		"control character":      {"token " + hash + " name=a\x00 namespace=*", "control character"},
		"escaped control":        {"token " + hash + " name=\"a\\\x01\" namespace=*", "control character"},
		"not UTF-8":              {"token " + hash + " name=\xff namespace=*", "not UTF-8"},
	}
	for name, tt := range tests {
		r, err := parseRoster(tt.text, true, false)
		if err == nil || !strings.Contains(err.Error(), tt.want) || r != nil {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: quotes the token: %v", name, err)
		}
	}
	if _, err := parseRoster("subject CN=a name=a namespace=*", false, false); err == nil || !strings.Contains(err.Error(), "client CA") {
		t.Errorf("subject without authorities: %v", err)
	}
}

// TestTokensAreComparedInConstantTime reads the source of the search: one comparison, made by
// crypto/subtle for every token, and nothing that ends the loop early or branches on what was
// found.
func TestTokensAreComparedInConstantTime(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "roster.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var search *ast.RangeStmt
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "byToken" {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if r, ok := n.(*ast.RangeStmt); ok {
					search = r
				}
				return true
			})
		}
	}
	if search == nil {
		t.Fatal("byToken has no loop")
	}
	compared := 0
	ast.Inspect(search.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BranchStmt, *ast.ReturnStmt, *ast.IfStmt, *ast.SwitchStmt, *ast.BinaryExpr:
			t.Errorf("the loop branches: %T", n)
		case *ast.SelectorExpr:
			if n.Sel.Name == "ConstantTimeCompare" {
				compared++
			}
		}
		return true
	})
	if compared != 1 {
		t.Errorf("%d comparisons in constant time", compared)
	}
}

func FuzzRoster(f *testing.F) {
	f.Add(exampleRoster)
	f.Add("token sha256:00 name=a namespace=*\n")
	f.Add("subject \"CN=\\\" name=a")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRoster(text, true, false)
		if (err == nil) != (r != nil) {
			t.Fatal("neither a roster nor an error, or both")
		}
		if err != nil {
			return
		}
		identities := make([]*Identity, 0, len(r.tokens)+len(r.subjects))
		for _, l := range r.tokens {
			identities = append(identities, l.identity)
		}
		for _, i := range r.subjects {
			identities = append(identities, i)
		}
		if len(identities) == 0 {
			t.Fatal("nobody is listed")
		}
		for _, i := range identities {
			if err := i.check(); err != nil {
				t.Fatalf("%+v: %v", i, err)
			}
		}
		if strings.Count(text, "\n")+1 < len(identities) {
			t.Fatal("more identities than lines")
		}
	})
}
