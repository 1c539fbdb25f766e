// Package archtest holds the tree to its plan: imports between packages, the place of each outside
// library, sizes and names.
//
// The rules are in table.go, each with its reason. If the work really needs a forbidden arrow,
// change the rule. The tests check that:
//
//   - packages with a rule import only the packages of ours that it allows
//   - every outside library is in the table, in production code only where its line allows;
//     docs/adr/0002-dependencies.md has it
//   - test helpers (packages called …test) are imported by tests and by each other only
//   - outside metrics.go and the wiring, code sees of Prometheus the Registerer alone
//   - tests sleep in bubbles of testing/synctest only
//   - leaktest looks for goroutines that tests have left
//   - cmd/streamer links nothing that is for development
//   - tests and transcripts that documents and doc.go name as proofs exist; every row of a table
//     of tests names one; docs/seeds.md has a proof, a plan or a reason in every row
//   - functions that ARCHITECTURE.md names exist in the files that it names; its table of rooms is
//     complete
//   - metrics, configuration keys and codes that documents name are in the generated references
//   - comments, and all documents that are not generated, are in plain English: few phrases of
//     english.go
//   - files and packages stay small, every package has a doc.go, no package is called after nothing
//     in particular, no init()
//
// The tree is read from its sources, tests included and whatever their build tags; generated files
// count for imports only.
package archtest
