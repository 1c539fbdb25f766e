// Package checkpointtest is the suite that every checkpoint store must pass.
//
// A store's own test opens a [Harness] and passes it to [TestStore], and to [TestRepartition] if
// the store can change its number of partitions. The harness does the work outside the store: it
// begins terms as the owner of partitions does, damages stored data, and interferes with the
// connection between the store and its server.
//
// [Memory] is a store without a server.
package checkpointtest
