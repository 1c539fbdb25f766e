// Package docblock finds the fenced blocks of code in the Markdown documents of the tree, for the
// tests that try them.
//
// The kind of a block is what stands after its fence: the language, and a word more where blocks of
// one language are tried in different ways ("yaml", "yaml connect"). A test takes all blocks of its
// kinds, from whatever document, so that none is forgotten. internal/archtest has the table of all
// kinds, each with the test that tries it or the reason why none does.
package docblock
