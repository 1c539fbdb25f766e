package plan_test

import (
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/plan"
)

func TestConfigIsValidated(t *testing.T) {
	good := plan.Config{Node: "a", Partitions: 16}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*plan.Config){
		"node":       func(c *plan.Config) { c.Node = "" },
		"partitions": func(c *plan.Config) { c.Partitions = change.MaxPartitions + 1 },
		"late":       func(c *plan.Config) { c.Late = time.Second },
		"silent":     func(c *plan.Config) { c.Silent = 5 * time.Second },
		"grace":      func(c *plan.Config) { c.Grace = time.Second },
		"negative":   func(c *plan.Config) { c.Settle = -time.Second },
	} {
		c := good
		spoil(&c)
		if c.Validate() == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if (plan.Config{}).Validate() == nil {
		t.Error("an empty configuration is taken")
	}
}
