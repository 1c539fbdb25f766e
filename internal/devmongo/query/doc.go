// Package query is the part of MongoDB's query language that devmongo speaks: the comparison order of BSON
// values, filters, sorts, projections, and the few aggregation expressions that updates may use.
//
// Everything is compiled once and then applied to raw documents. What MongoDB does not know is refused with
// its own error (BadValue 2 for an operator, FailedToParse 9); what MongoDB knows and devmongo does not is
// refused with CommandNotSupported (115). Nothing is ever ignored.
//
// A Filter knows which fields it reads (Fields) and which _id values it can only match (IDs), so that a
// caller can remember its decisions or look documents up instead of scanning.
package query
