// Package etcdtest starts etcd for tests ([Start], [StartCluster]), and gets in the way between a
// client and its etcd ([Link], [Fault]). With STREAMER_TEST_ETCD_ENDPOINTS the tests use an etcd
// that runs already.
package etcdtest
