// Package process runs whole processes: it builds cmd/streamer, starts it against a development
// MongoDB and embedded etcds (or the servers that STREAMER_TEST_MONGODB_URI and
// STREAMER_TEST_ETCD_ENDPOINTS name), and crashes, freezes, isolates, stops and operates it. It has
// tests only.
package process
