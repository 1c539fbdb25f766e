// Package record is the form in which stores keep checkpoints, origins and the gap log: JSON that an operator can read with etcdctl or
// mongosh.
//
// A reader refuses a newer version than its own and tolerates fields that it does not know; whoever changes the meaning of a field
// raises the version. What is refused is a fault that names where it is stored: CheckpointNewer, CheckpointPartitions, or CheckpointCorrupt.
// Errors never show a token, which contains a document's key.
//
// Beside a checkpoint stands its trail: how many entries its history has had, and when the last one was made.
package record
