// Package query is the part of MongoDB's query language that devmongo supports: the comparison
// order of BSON values, filters, sorts, projections, updates, and the few aggregation expressions
// that updates may use.
//
// Everything is compiled once and then applied to raw documents. Features that MongoDB does not
// have are refused with MongoDB's own error (BadValue 2 for an operator, FailedToParse 9). Features
// that only devmongo lacks are refused with CommandNotSupported (115). No option is ignored.
//
// A [Filter] knows which fields it reads (Fields) and which _id values it can match (IDs), so a
// caller can cache its results or look documents up instead of scanning.
//
// An [Update] is a replacement, MongoDB's modifiers with dotted paths, array indexes, $, $[] and
// $[identifier], or a pipeline of $set, $unset and $replaceWith. Apply makes a new document from an
// old one and returns also the fields that were set and removed, as an oplog entry and a change
// event name them. An update that changes nothing causes neither. Fields change in the server's
// order: sorted by path, array indexes as numbers; new fields are appended.
package query
