// Package devbroker runs the targets of sinks inside the process, for the demo, the benchmark and
// the tests: franz-go's fake of a Kafka cluster, and a real NATS server with JetStream. It is never
// linked into cmd/streamer.
package devbroker
