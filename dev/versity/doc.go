// Package devversity runs versitygw, an S3 server over a folder, as a process of its own for tests
// of the retained log: what one server really does, beside what tests believe. `make s3`
// builds it. It is never linked into cmd/streamer.
package devversity
