// Package uri is the one reader of MongoDB connection strings. It validates them, hides their
// secrets, names their hosts, and builds the options for the driver.
//
// The driver's parser alone is not enough: where a password has characters that should have been
// percent-encoded, it guesses, and may dial a part of the password. So this package first checks
// the characters by RFC 3986, and then lets the driver parse the text. No error of this package
// contains any part of a password, or the value of any option.
//
// Each option of the driver has a row in a table (options.go, docs/reference/connection-string.md),
// which says whether it is used, replaced, because the node must set it itself, or refused, because
// it would harm the reading of the log.
//
//go:generate go test -run TestOptionsAreDocumented -args -rewrite
package uri
