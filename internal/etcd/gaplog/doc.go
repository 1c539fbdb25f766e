// Package gaplog keeps the gap log in etcd, beside the marks, whose store embeds it: a key for each entry.
package gaplog
