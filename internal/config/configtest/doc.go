// Package configtest says which test shows the effect of each key of the configuration, and finds
// values where they arrive.
//
// [Proofs] is the table of keys and tests. A test of package config holds it against the reference
// and the tests' sources, so that no key is without a row and no row without its test. Tests of the
// part that obeys a key know nothing of the configuration: for their keys [Values] finds the value
// of the key in what is made of a configuration.
package configtest
