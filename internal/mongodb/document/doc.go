// Package document reads the documents of collections as they are, for snapshots.
package document
