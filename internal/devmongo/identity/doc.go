// Package identity is about what tells documents and collections apart: the _id that every document has, the error
// when two have the same, and new ids.
package identity
