// Package mongodb connects to a MongoDB deployment. It detects the deployment's kind, classifies
// its errors, and reads documents for snapshots. All code that uses the MongoDB driver is here and
// below: package stream reads the oplog, package checkpoints keeps checkpoints. probe.go collects
// facts for the check before a node starts; internal/preflight interprets them. No driver type
// leaves this tree.
package mongodb
