// Package retentiontest has the suite of stores, and a store in memory for tests that fails on
// request.
package retentiontest
