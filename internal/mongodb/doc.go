// Package mongodb is the connection to a MongoDB deployment: what it is, what its errors ask for,
// and the documents that snapshots read. Everything that touches the MongoDB driver is here and
// below: stream reads the log, checkpoints keeps checkpoints. Facts about a deployment for a check
// before a node starts (probe.go) are here too; internal/preflight decides what they mean. No
// driver type leaves this tree.
package mongodb
