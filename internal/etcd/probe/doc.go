// Package probe asks etcd how it does, once and before a node is started. Nothing is written. What it answers are facts; what they mean
// is decided in internal/preflight.
package probe
