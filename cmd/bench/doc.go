// Command bench measures what a node costs and what it gives, as ratios between contenders that ran side by side: the whole node,
// and simpler ways to read the same log.
//
//	bench [-quick] [-gateways] [-o json|markdown] [-uri mongodb://…] [-profile DIR]
//
// Without -uri it starts a development MongoDB that serves from memory, so that the client is what is measured; with -uri it writes to
// a real one and also measures that server. etcd is real, and started here. Every side is a process of its own (package part), so
// that CPU and memory are told apart.
//
// With -gateways it also measures what gateways cost (package gateways, and a gateway of the Go client on a node), and what they notice of
// partitions that change hands (package moves).
//
// Contenders run in the order A B B A; figures are medians over the rounds, and a ratio of two rates is the median of the rounds'
// ratios. Each is held to the number of changes and to the order of every document's; a contender that fails makes the figures it is
// part of void, and the exit code 1. A figure that is not what was wanted is told as it is; with -profile and -o markdown, with where
// the CPU time went.
//
// The development MongoDB hands out events many times faster than a real one, which has to read and to build them. Where that would
// make a ratio meaningless it is paced at 120,000 events a second, which a MongoDB 4.4 does on a machine of two cores; the
// unpaced figure stands beside it.
package main
