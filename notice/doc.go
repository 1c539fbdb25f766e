// Package notice tells operators and gateways what happened to the service: typed messages on four channels.
//
// A [Board] takes notices from every part of a node, writes each to the log, keeps the last ones, and lets any number of readers follow.
// Posting never blocks: a reader that does not keep up misses the oldest and is told how many.
// A [Stream] serves a board to people and programs as server-sent events. [Table] says which kinds there are and what they must tell.
package notice

//go:generate go test -run TestKindsAreDocumented -args -rewrite
