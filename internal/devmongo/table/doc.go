// Package table keeps documents in memory: in the order in which they came, found by the KeyString of their _id,
// and sorted by it when somebody asks. Documents are replaced, never changed in place.
//
// A Table is not safe for concurrent use: the store guards it. An Overlay is what a transaction has changed in it;
// scans see through it.
package table
