// Package oplogtest provides an in-memory oplog.Source for tests of timing and order.
package oplogtest
