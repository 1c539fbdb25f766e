// Package row keeps the rows of gateways in MongoDB, beside the marks, whose store embeds it: one document for each gateway, whose name
// is the _id. A save is an update of the document with the very text that was looked at, or an insert. Documents that have not been
// renewed for long are deleted when rows are listed.
package row
