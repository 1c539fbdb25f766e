// Package survey remembers how far MongoDB's log goes, and says how near a position is to being lost.
package survey
