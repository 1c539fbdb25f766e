// Package devetcd runs a real etcd of one member inside the process, for the demo and the tests: on
// 127.0.0.1, in a data folder that the caller names, quiet, quick to start and to stop, and small.
// It is never linked into cmd/streamer. Members of larger clusters run in processes of their own,
// which can be stopped and paused ([RunMember]; package etcdtest).
//
// It trades safety for speed where development may: nothing is synced to the disk, so that a crash
// of the machine (not of the process) can lose writes, and elections are ten times as fast as
// etcd's default, so that a lease of one second is possible.
package devetcd
