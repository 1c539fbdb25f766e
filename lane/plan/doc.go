// Package plan decides which catch-up serves which cursor, and where the tail begins. It is pure.
package plan
