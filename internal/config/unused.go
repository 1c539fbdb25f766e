package config

import "strings"

// A dependence says what keys need in order to have an effect.
type dependence struct {
	keys []string // each a key, or with a dot at its end all keys that begin with it
	need string   // what must be set, for people
	met  func(c *Config) bool
}

// dependences returns what keys need. What none of them names has an effect by itself, or is
// refused where it has none (findConflicts). Where etcd is not used, a check of its own says so.
func dependences() []dependence {
	return []dependence{
		{
			[]string{"cluster.round_floor", "cluster.rebalance_debounce", "cluster.settle_time", "cluster.rebalance", "cluster.rebalance_floor", "cluster.rebalance_cooldown", "cluster.resync.", "cluster.assignment_circuit."},
			"cluster.expected_nodes of 2 or more", func(c *Config) bool { return c.Cluster.ExpectedNodes > 1 },
		},
		{[]string{"retention."}, "retention.store", func(c *Config) bool { return c.Retention.Store != "" }},
		{[]string{"notices.webhook."}, "notices.webhook.url", func(c *Config) bool { return c.Notices.Webhook.URL != "" }},
		{[]string{"debug.dump_max", "debug.lag_threshold", "debug.stall_threshold"}, "debug.dump_dir", func(c *Config) bool { return c.Debug.DumpDir != "" }},
		{[]string{"tracing."}, "tracing.endpoint", func(c *Config) bool { return c.Tracing.Endpoint != "" }},
		{[]string{"access.leeway"}, "access.jwks_file", func(c *Config) bool { return c.Access.JWKSFile != "" }},
		{[]string{"reliability.dedup."}, "reliability.dedup.enabled", func(c *Config) bool { return c.Reliability.Dedup.Enabled }},
		{[]string{"reliability.gap_detection."}, "reliability.gap_detection.enabled", func(c *Config) bool { return c.Reliability.GapDetection.Enabled }},
	}
}

// names reports whether the dependence is that of a key.
func (d dependence) names(key string) bool {
	for _, k := range d.keys {
		if k == key || strings.HasSuffix(k, ".") && strings.HasPrefix(key, k) {
			return true
		}
	}
	return false
}

// lacks returns what a key lacks to have an effect, empty where it has one.
func (c *Config) lacks(key string) string {
	for _, d := range dependences() {
		if d.names(key) && !strings.HasPrefix(d.need, key) && !d.met(c) {
			return d.need
		}
	}
	return ""
}
