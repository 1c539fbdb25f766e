// Package record is the stored form of checkpoints, origins and the gap log: JSON that an operator can read with etcdctl or mongosh.
//
// A reader rejects a newer version than its own and ignores unknown fields; a change to the meaning of a field must raise the version.
// Rejected records are faults that name their key: CheckpointNewer, CheckpointPartitions, or CheckpointCorrupt. Errors never contain a
// token, because a token contains a document key.
//
// A checkpoint is stored with its trail: the number of its history entries and the time of the last one.
package record
