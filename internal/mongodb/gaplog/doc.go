// Package gaplog keeps the gap log in MongoDB, beside the marks, whose store embeds it: a document for each entry.
package gaplog
