// Package contender is what the benchmark compares: ways to read a log of changes, each run as a part of its own.
//
//	raw        a loop of getMore through the driver that discards the replies
//	bare       a change stream through the driver, the events left as they come
//	naive      Watch, Next and Decode(bson.M) in one goroutine
//	streams    a change stream for each collection, each filtered by MongoDB
//	node       the whole node: tail, lanes, windows, marks in etcd, sessions that acknowledge
//	window     a lane's window, in memory
//	expirable  golang-lru's expirable LRU in its place
//
// Whatever a contender reads goes through a [Check], which counts it and holds every document to its order; a contender that drops
// or reorders a change gets no figure. The check finds what it needs at places that it remembers, so that it costs all contenders
// the same few nanoseconds.
package contender
