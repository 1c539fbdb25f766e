// Package node has no code, only tests: it assembles nodes in this process and tests them as their
// users meet them, against a real etcd and the development MongoDB.
package node

//go:generate go test -run TestMetricsAreDocumented -args -rewrite
