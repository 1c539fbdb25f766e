package policy_test

import (
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/govern/policy"
)

func TestConfigIsValidated(t *testing.T) {
	good := policy.Config{Node: "a", Partitions: 16}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*policy.Config){
		"node":       func(c *policy.Config) { c.Node = "" },
		"partitions": func(c *policy.Config) { c.Partitions = change.MaxPartitions + 1 },
		"late":       func(c *policy.Config) { c.Late = time.Second },
		"silent":     func(c *policy.Config) { c.Silent = 5 * time.Second },
		"grace":      func(c *policy.Config) { c.Grace = time.Second },
		"negative":   func(c *policy.Config) { c.Settle = -time.Second },
	} {
		c := good
		spoil(&c)
		if c.Validate() == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if (policy.Config{}).Validate() == nil {
		t.Error("an empty configuration is taken")
	}
}
