// Package build appends BSON elements to a buffer: just enough to make the few events that are ours and not MongoDB's.
package build
