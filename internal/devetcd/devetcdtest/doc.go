// Package devetcdtest gives tests an etcd: a running one, where STREAMER_TEST_ETCD_ENDPOINTS names its endpoints, or one of
// their own.
package devetcdtest
