// Package preflight checks the environment of a node before its start: MongoDB, its oplog, etcd,
// the checkpoint store, certificates and tokens, and whether it would be open to strangers.
//
//	ok    as it should be
//	warn  a node runs, but some promise does not hold, or not for long
//	fail  a node does not start, or delivers nothing
//	skip  not tried, because a check that it needs has failed
//
// An open node is a warning, because a proxy or a firewall that the check cannot see may protect
// it. Every result other than ok and skip has a fault code, and with it a remedy. The inspector
// gathers facts; the judge functions turn facts into findings and are pure. Nothing is written.
package preflight
