// Package checkpointtest is what every store of checkpoints must pass.
//
// A store's own test opens a [Harness] and hands it to [TestStore], and to [TestRepartition] if its
// partitions can be counted anew. The harness plays the parts that are not the store's: it begins
// terms as the owner of partitions does, damages what is stored, and gets in the way of the
// connection between the store and its server.
//
// [Memory] is a store without a server.
package checkpointtest
