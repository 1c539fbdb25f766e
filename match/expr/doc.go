// Package expr understands the expressions of filters: CEL over the variables doc, before, key, update, op and ns.
//
// [Check] parses and types an expression and refuses what cannot work; [Checked.Reads] foresees what it will look at. An [Expression] is
// evaluated on the [Facts] of an event, of which some are not known: the document of a delete, anything of a document where a whole
// collection was dropped. Its [Verdict] is then Unknown, unless it is the same whatever they may be.
//
// What is a comparison of a field with constants becomes a [Predicate], which says exactly what CEL says of it but costs a fraction, and
// which an index can be made of.
package expr
