package access_test

import (
	"strings"
	"testing"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

func TestIdentityAllowsWhatItNames(t *testing.T) {
	tests := []struct {
		namespaces, db, coll string
		want                 bool
	}{
		{"*", "shop", "orders", true},
		{"*", "shop", "", true},
		{"*", "", "", true},
		{"*", "", "orders", true},
		{"shop.*", "shop", "orders", true},
		{"shop.*", "shop", "a.b", true},
		{"shop.*", "shop", "", true},
		{"crm.x shop.*", "shop", "", true},
		{"crm.x shop.*", "crm", "", false},
		{"shop.*", "shopping", "", false},
		{"*.orders", "shop", "", false},
		{"shop.*", "", "", false},
		{"shop.*", "", "orders", false},
		{"shop.*", "shopping", "orders", false},
		{"shop.*", "Shop", "orders", false},
		{"shop.orders", "shop", "orders", true},
		{"shop.orders", "shop", "orders2", false},
		{"shop.orders", "shop", "orders.2", false},
		{"shop.orders", "shop", "", false},
		{"shop.orders", "shop", "*", false},
		{"shop.a.b", "shop", "a.b", true},
		{"shop.a.b", "shop.a", "b", false},
		{"crm.x shop.*", "shop", "orders", true},
		{"crm.x shop.*", "crm", "y", false},
		{"", "shop", "orders", false},
		{"", "", "", false},
		{"shop", "shop", "orders", false},
	}
	for _, tt := range tests {
		i := &access.Identity{Name: "x", Namespaces: strings.Fields(tt.namespaces)}
		if got := i.Allows(tt.db, tt.coll); got != tt.want {
			t.Errorf("%q allows %q, %q: %v", tt.namespaces, tt.db, tt.coll, got)
		}
		if err := i.Permit(tt.db, tt.coll); (err == nil) != tt.want || err != nil && fault.Of(err) != fault.AccessForbidden {
			t.Errorf("%q permits %q, %q: %v", tt.namespaces, tt.db, tt.coll, err)
		}
	}
}

// A refusal says what the identity may do instead.
func TestRefusalsNameWhatIsMissing(t *testing.T) {
	i := &access.Identity{Name: "billing", Namespaces: []string{"shop.*", "crm.x"}}
	for _, c := range []struct{ db, coll, says string }{
		{"", "", "may not subscribe to all databases: name db"},
		{"crm", "", `may subscribe to single collections of "crm" only: name coll`},
		{"hr", "", `may not subscribe to "hr"`},
		{"crm", "y", `may not subscribe to "crm.y"`},
	} {
		if err := i.Permit(c.db, c.coll); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s.%s: %v", c.db, c.coll, err)
		}
	}
}

func TestNobodyMayNothing(t *testing.T) {
	var nobody *access.Identity
	for _, i := range []*access.Identity{nobody, {}} {
		if i.Allows("shop", "orders") || i.Allows("", "") || fault.Of(i.Permit("", "")) != fault.AccessForbidden {
			t.Errorf("%+v may something", i)
		}
	}
	if i := access.From(t.Context()); i != nil {
		t.Errorf("%+v of a context without one", i)
	}
}
