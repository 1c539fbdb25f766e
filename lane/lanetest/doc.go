// Package lanetest is a log in memory that implements lane.Source, for tests of timing and order.
package lanetest
