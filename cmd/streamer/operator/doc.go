// Package operator has the commands with which operators look after a cluster: check, config,
// status, tail, subscribers, gaps, cluster, handoff and drain. It parses arguments, asks for
// confirmation, and prints; package admin does the work, and package preflight the checks.
//
// Every command that prints data prints a table, or JSON with -o json. Invalid arguments are the
// fault CommandBadArgument and change nothing. Every command that changes something asks for
// confirmation on a terminal; without a terminal it needs --yes. Commands that move checkpoints
// show their plan with --dry-run.
package operator
