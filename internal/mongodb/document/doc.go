// Package document reads the documents of collections as they are, for rescans after a loss.
package document
