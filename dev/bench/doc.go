// Command bench measures what a node costs and what it gives, as ratios between contenders that ran
// side by side: programs that get their changes from a node, and simpler ways to read the same log.
//
//	bench [-quick] [-race NAME] [-attacks NAME,…] [-o json|markdown] [-uri mongodb://…] [-profile DIR]
//
// Without -uri it starts a development MongoDB that serves from memory, so that its clients are
// what is measured; with -uri it writes to a real one and also measures that server. etcd is real,
// and started here. MongoDB, etcd, each node and its client are processes of their own, so that the
// CPU and memory of each are told apart: the program executes itself again, with the name of the
// worker after a hidden first argument, and exchanges lines of JSON with it over standard input and
// output. A worker ends when its input does.
//
//	raw         a loop of getMore through the driver that discards the replies
//	bare        a change stream through the driver, the events left as they come
//	naive       Watch, Next and Decode(bson.M) in one goroutine
//	grpc        the Go client, which takes every event from a node that is measured
//	sse         clients of server-sent events, likewise
//	find        one find over a collection
//	scanned     the Go client, while another one begins with a snapshot at the default rate
//	busy        the Go client, which begins with a snapshot, at the default rate, of a collection that changes all the time
//	moved       two nodes share the partitions; one is told to give up what it has, and hands it over
//	tenants     clients of ten identities, alone and while ten hostile ones attack the node
//	restarted   one node has all partitions; it is stopped and started again, and nobody serves meanwhile
//	sink        a node's sink publishes to Kafka, with and without transactions, or to JetStream
//	producer    a loop that publishes the messages of the sink again, and does nothing else
//
// Whatever a contender gets goes through a [Check], which counts it and holds every document to its
// order. A contender that drops or reorders a change makes the figures that it is part of void, and
// the exit code 1. The check finds what it needs at places that it remembers, so that it costs all
// contenders the same few nanoseconds.
//
// Contenders run in the order A B B A; figures are medians over the rounds, and a ratio of two
// rates is the median of the rounds' ratios. A figure that is not what was wanted is told as it is;
// with -profile and -o markdown, with where the CPU time went.
//
// Of partitions that change hands it is measured how long documents stood still. One client follows
// the owners of partitions, one has its session with any node. From the moment before the move
// until all is over, each document's longest delay is kept, from its writing to the handler of the
// first client. Only documents of partitions that changed hands count.
//
// A sink and the producer after it have the same broker, in a process of its own: franz-go's fake
// of Kafka, in memory, or an embedded NATS server with a stream in files. What has arrived is
// checked after the clocks have stopped.
//
// The development MongoDB hands out events many times faster than a real one, which has to read and
// to build them. Where that would make a ratio meaningless it is paced at 120,000 events a second,
// which a MongoDB 4.4 does on a machine of two cores; the unpaced figure stands beside it.
package main

//go:generate go test -run TestSizingHasTheMeasuredFigures -args -rewrite
