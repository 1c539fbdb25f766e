// Package oplogtest is a log in memory that implements oplog.Source, for tests of timing and order.
package oplogtest
