package access

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzRights reads the claim of a token that an issuer has signed: what is taken is an identity
// that the list could have too.
func FuzzRights(f *testing.F) {
	f.Add(`{"namespaces":["shop.*","crm.orders"],"max_subscriptions":7,"events_per_second":8,"bytes_per_second":9}`)
	f.Add(`{"namespaces":["*"],"max_sessions":1e3,"max_connections":0,"max_notices":1.0,"starts_per_second":1099511627776}`)
	f.Add(`{"namespaces":["*"],"max_sessions":-1}`)
	f.Add(`{"Namespaces":["*"],"max_session":1}`)
	f.Add(`{"namespaces":[1],"max_sessions":"1"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var claim any
		if json.Unmarshal([]byte(text), &claim) != nil {
			return
		}
		i, err := ofToken(verifiedToken{Subject: "a", Claims: map[string]any{rightsClaim: claim}})
		if err != nil {
			return
		}
		if err := i.check(); err != nil {
			t.Fatalf("%s was taken as %+v: %v", text, i, err)
		}
		rights, _ := claim.(map[string]any)
		for _, l := range i.limits() {
			if value, given := rights[l.name].(float64); given && float64(*l.value) != value || !given && *l.value != 0 {
				t.Fatalf("%s became %d of %s", l.name, *l.value, text)
			}
		}
		for name := range rights {
			if name != "namespaces" && i.limit(name) == nil {
				t.Fatalf("%s is ignored in %s", name, text)
			}
		}
		if strings.Join(i.Namespaces, "") == "" {
			t.Fatalf("no namespaces in %s", text)
		}
	})
}

// An identity's name begins the names of its subscribers, and is a label and a field of log lines.
func TestIdentitiesAreNotCalledLikeSinks(t *testing.T) {
	for name, good := range map[string]bool{"sinks": true, "billing": true, "stdout": true, "sink": false, "a\nb": false, "\xff": false, "\u202e": false} {
		i := &Identity{Name: name, Namespaces: []string{"*"}, key: "listed:" + name}
		if err := i.check(); good != (err == nil) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := (&Identity{Name: "sink", Namespaces: []string{"*"}, key: jwtKey + "sink"}).check(); err != nil {
		t.Errorf("a JWT's subject, which is kept as jwt:sink: %v", err)
	}
}
