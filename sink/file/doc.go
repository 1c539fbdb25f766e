// Package file appends changes to files as lines. A file that has reached its size is renamed and a
// new one is begun; the oldest are deleted. Lines are synced to the disk before they are
// acknowledged. Nodes must not share a file. An [Output], such as standard output, takes the same
// lines.
package file
