// Package suite is what every store of the roster must pass.
package suite
