// Package owner keeps who owns which partition in etcd: one key for each partition, all under the lease of the process that owns them.
//
// An epoch is the origin's incarnation and the mod revision of the owner key, which nobody writes between claims. A [Registry] renews
// its lease only when it is told to, and looks at the same time whether all its keys are there: an operator's rewind deletes one. What
// a claim cannot learn, because an answer got lost, it learns by saying it again: the keys that stand carry the process and the lease.
package owner
