// Package uri reads MongoDB connection strings, for everybody who asks anything of one: whether it
// is valid, what of it may be shown, which hosts it leads to, and what the driver gets.
//
// The driver's parser decides what is valid, but it is not alone: it guesses where a password has
// characters that should have been percent-encoded, and then dials a part of the password. So the
// characters are judged first, by RFC 3986, and what follows is read by the driver. No error of
// this package contains anything of a password, nor the value of any option.
//
// Each option of the driver has a row in a table (options.go, docs/reference/connection-string.md),
// which says whether it is used, replaced, because the node must set it itself, or refused, because
// it would harm the reading of the log.
//
//go:generate go test -run TestOptionsAreDocumented -args -rewrite
package uri
