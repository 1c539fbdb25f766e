// Package gateways holds what the benchmark measures of gateways without a MongoDB: how fast the index of subscriptions answers, what
// sessions cost beside each other, and what a message costs. They are contenders that work in memory ([contender.Round.Did]).
//
//	indexed, indexable, few    the index of subscriptions: all, those that an index helps with, 1,000 of those
//	linear, rest               every filter evaluated one by one: all, those that no index helps with
//	once, each                 an event handed to many sessions, written once for all or for each in a form of its own
//	alone, stalled             sessions that keep up, without and beside some that never acknowledge
//	batched, single            events through gRPC, many in a message or one
package gateways
