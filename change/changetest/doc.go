// Package changetest builds change events and resume tokens as MongoDB sends them, for tests.
package changetest
