// Package gaptest is what every keeper of a gap log must pass.
package gaptest
