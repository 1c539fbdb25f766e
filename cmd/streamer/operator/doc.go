// Package operator has the commands with which people look after a cluster: how a node does, where subscribers are, what was
// lost, and what moves them. It reads arguments, asks, and prints; what is done is in internal/admin, and what is checked in internal/preflight.
//
// Every command that prints data prints it as a table, or as JSON with -o json. Bad input is one fault, and changes nothing. Every command that
// changes something asks first, on a terminal; without one it needs --yes. Those that move checkpoints show with --dry-run what they would do.
package operator
