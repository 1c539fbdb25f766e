// Package file appends changes to files as lines. When a file has reached its size, the sink
// renames it, starts a new one, and deletes the oldest. Lines are synced to the disk before they
// are acknowledged. Nodes must not share a file. An [Output], such as standard output, takes the
// same lines.
package file
