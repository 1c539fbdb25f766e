// Package lease keeps what all who hold keys in etcd under a lease have in common: how a lease begins and ends, what its keys say of who
// holds them, and how that one is named to whom it is in the way of.
package lease
