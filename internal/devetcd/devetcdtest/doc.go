// Package devetcdtest gives tests an etcd: a running one, where STREAMER_TEST_ETCD_ENDPOINTS names its endpoints, or one of
// their own. A [Cluster] is an etcd of several members whose [Faults] a test can cause.
package devetcdtest
