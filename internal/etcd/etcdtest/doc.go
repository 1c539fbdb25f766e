// Package etcdtest starts etcd for tests ([Start], [StartCluster]), and injects faults between a
// client and its etcd ([Link], [Fault]). With STREAMER_TEST_ETCD_ENDPOINTS the tests use a running
// etcd.
package etcdtest
