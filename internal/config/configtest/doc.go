// Package configtest names the test of the effect of each key of the configuration, and finds
// values where they arrive.
//
// [Proofs] is the table of keys and tests. A test of package config compares it with the reference
// and with the tests' sources: a key without a row fails, and so does a row without its test. Tests
// of the part that obeys a key know nothing of the configuration: for their keys another test finds
// the assignment in the sources that assemble a node, and [Values] finds the key's value in a
// target that is made from a configuration.
package configtest
