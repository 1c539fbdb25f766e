// Package match decides which events match a subscription.
//
// A [Filter] selects databases, collections and operations and may have a CEL expression. [Compile]
// validates it and returns a [Program], which matches one event at a time. An [Index] holds the
// programs of all subscribers and matches an event against all of them at once: it returns the same
// results as the programs, at the cost of those that may match. A [Selector] considers namespace
// and operation only.
//
// # Results
//
// A program matches, does not match, or fails: a filter that cannot be evaluated is an error, never
// silently false. If the event lacks a value that the filter reads (the document of a delete, any
// document when a collection is dropped), the program matches unless it would be false for every
// value. docs/filters.md describes the language, the types and the limits.
//
// # Index
//
// The index uses one of the conditions that a filter joins with &&: one that compares a field with
// constants. For an event it excludes exactly the filters whose condition is false. It walks a
// document once for all indexed fields and decodes nothing. A filter that consists of the condition
// alone is decided by it; others are evaluated. Events that do not concern a single document (drop,
// rename, …) are rare and evaluated by every filter.
//
// Add and Remove never block Match, because the containers are copied on write. A concurrent Match
// sees a subscription completely or not at all.
//
// Nothing here starts a goroutine, does I/O, or retains an event.
//
// # Not obvious, and the tests that guard it
//
//   - The index and the filters give the same answer (match.TestProveIndexAgreesWithFilters)
package match
