// Package etcdtest gets in the way between a client and its etcd.
package etcdtest
