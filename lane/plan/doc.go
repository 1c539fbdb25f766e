// Package plan decides which catch-up serves which cursor. It is pure.
package plan
