// Package row keeps the rows of gateways in etcd, beside the marks, whose store embeds it: one key for each gateway, which ends with its
// name. A save is a transaction that puts the row if the key still has the revision that was looked at.
package row
