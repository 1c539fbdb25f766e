// Package doc walks and builds BSON documents as bytes.
//
// Documents that came over the wire were checked to the last byte by package wire, and those that devmongo
// builds are sound by construction, so walking here trusts lengths and returns no errors: what cannot be
// read ends the walk. Values alias the document they were read from; whoever keeps one copies it.
package doc
