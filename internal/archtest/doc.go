// Package archtest holds the tree to its plan: who imports whom, where each outside library lives, how large things get.
//
// The rules are in table.go, each with its reason. If the work really needs an arrow that they forbid, change the rule. What is checked:
//
//   - packages with a rule import of ours only what it allows
//   - every outside library is in the table, in production code only where its line allows; docs/adr/0002-dependencies.md has it
//   - test helpers (packages called …test) are imported by tests and by each other only
//   - outside metrics.go and the wiring, code sees of Prometheus the Registerer alone
//   - tests sleep in bubbles of testing/synctest only
//   - cmd/streamer links nothing that is for development
//   - tests and transcripts that documents name as proofs exist; docs/seeds.md has a proof, a plan or a reason in every row
//   - files and packages stay small, every package has a doc.go, no package is called after nothing in particular, no init()
//
// The tree is read from its sources, tests included and whatever their build tags; generated files count for imports only.
package archtest
