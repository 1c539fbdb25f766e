// Package keytest is what every keeper of keys must pass.
package keytest
