// Package match decides which events a subscriber wants.
//
// A [Filter] names databases, collections and operations and may have an expression in CEL; [Compile] checks it and makes a [Program],
// which answers for one event at a time. An [Index] holds the programs of all subscribers and answers for all of them at once: what it
// says of an event is what each program would say, at the cost of those that may match. A [Selector] looks at namespace and operation
// only.
//
// # What a program says
//
// Yes, no, or that the filter cannot be evaluated: an error, never a quiet no. Where the event does not tell what the filter asks (the
// document of a delete, anything of a document when a whole collection is dropped) the program says yes, unless it would say no whatever
// that were. docs/filters.md has the language, the table of types and the limits.
//
// # The index
//
// Of the conditions that a filter joins with &&, the index stands on one that compares a field with constants: for an event, every filter
// whose condition is false is out, and no other. It walks a document once, for all fields that anybody asks for, and decodes nothing.
// Filters that consist of the condition alone are decided by it; the others are evaluated. Events that are not of one document (drop,
// rename, …) are rare and put to every filter.
//
// Add and Remove never hold up a Match: the containers of package posting are replaced piece by piece. A Match beside them sees a
// subscription wholly or not at all.
//
// Nothing here starts a goroutine, does I/O, or keeps an event: what an index returns are IDs.
package match
