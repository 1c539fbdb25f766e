package mongodb

import (
	"slices"
	"testing"
)

func TestOthersAreTheMembersWithData(t *testing.T) {
	for name, c := range map[string]struct {
		told hello
		want []string
	}{
		"one member":           {hello{Me: "a:1", Hosts: []string{"a:1"}}, nil},
		"three":                {hello{Me: "b:1", Hosts: []string{"a:1", "b:1", "c:1"}}, []string{"a:1", "c:1"}},
		"passive ones too":     {hello{Me: "a:1", Hosts: []string{"a:1", "c:1"}, Passives: []string{"b:1"}}, []string{"c:1", "b:1"}},
		"passive itself":       {hello{Me: "b:1", Hosts: []string{"a:1"}, Passives: []string{"b:1"}}, []string{"a:1"}},
		"named twice":          {hello{Me: "a:1", Hosts: []string{"b:1", "a:1", "b:1"}, Passives: []string{"b:1"}}, []string{"b:1"}},
		"does not name itself": {hello{Hosts: []string{"a:1"}}, []string{"a:1"}},
		"mongos":               {hello{Message: "isdbgrid"}, nil},
	} {
		if got := c.told.others(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
