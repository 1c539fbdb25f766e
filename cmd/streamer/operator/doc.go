// Package operator has the commands with which people look after a cluster: how a node does, where the marks are, what was lost, and
// what moves marks. It reads arguments, asks, and prints; what is done is in internal/admin, and what is checked in internal/preflight.
//
// Every command that prints data prints it as a table, or as JSON with -o json. Bad input is one fault, and changes nothing. What is
// irreversible asks on a terminal, shows itself with --dry-run, and is given --yes by scripts.
package operator
