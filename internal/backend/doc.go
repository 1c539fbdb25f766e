// Package backend connects nodes and operators to the services in the configuration: the checkpoint
// store, the MongoDB deployment that it belongs to, and the etcd cluster through which several
// nodes share the partitions. It verifies that all nodes of a cluster use the same ones.
package backend
