// Command bench measures the cost and the performance of a node, as ratios between contenders that
// ran side by side: programs that get their changes from a node, and simpler ways to read the same
// oplog.
//
//	bench [-quick] [-race NAME] [-attacks NAME,…] [-o json|markdown] [-uri mongodb://…] [-profile DIR]
//
// Without -uri it starts a development MongoDB that serves from memory, so that it measures only
// the clients; with -uri it writes to a real one and also measures that server. It starts a real
// etcd. MongoDB, etcd, each node and its client are separate processes, so that the CPU time and
// memory of each are known: the program executes itself again, with the name of the worker after a
// hidden first argument, and exchanges lines of JSON with it over standard input and output. A
// worker ends when its input does.
//
//	raw         a loop of getMore through the driver that discards the replies
//	bare        a change stream through the driver, the events left as they come
//	naive       Watch, Next and Decode(bson.M) in one goroutine
//	grpc        the Go client, which takes every event from a node that is measured
//	sse         clients of server-sent events, likewise
//	crowd       clients of server-sent events that all get everything, likewise
//	find        one find over a collection
//	scanned     the Go client, while another one begins with a snapshot at the default rate
//	busy        the Go client, which begins with a snapshot, at the default rate, of a collection that changes all the time
//	moved       two nodes share the partitions; one is drained, and hands its partitions over
//	tenants     clients of ten identities, alone and while ten hostile ones attack the node
//	restarted   one node has all partitions; it is stopped and started again, and no node serves meanwhile
//	sink        a node's sink publishes to Kafka, with and without transactions, to JetStream, over HTTP, or to a file
//	producer    a loop that publishes the messages of the sink again, and does nothing else
//
// Every change that a contender gets goes through a check, which counts it and verifies the order
// of each document. If a contender drops or reorders a change, its figures are void and the exit
// code is 1. The check remembers the offsets of its fields, so that it costs all contenders the
// same few nanoseconds.
//
// Contenders run in the order A B B A; figures are medians over the rounds, and a ratio of two
// rates is the median of the rounds' ratios. A figure that misses its target is reported unchanged;
// with -profile and -o markdown, with a CPU profile.
//
// For moved partitions it measures how long the delivery of documents paused. One client follows
// the owners of partitions, one has its session with any node. From before the move until all is
// over, the benchmark keeps each document's longest delay, from its write to the handler of the
// first client. Only documents of moved partitions count.
//
// A sink and the producer after it use the same target, in a separate process: franz-go's fake of
// Kafka, in memory, an embedded NATS server with a stream in files, or an HTTP endpoint that
// appends what it gets to a file; or they write files in one folder. The messages are checked after
// the clocks have stopped.
//
// The development MongoDB returns events many times faster than a real one, which has to read and
// to build them. Where that would make a ratio meaningless, it is limited to 120,000 events a
// second, the rate of a MongoDB 4.4 on a machine with two cores; the unlimited figure is reported
// next to it.
package main

//go:generate go test -run TestSizingHasTheMeasuredFigures -args -rewrite
