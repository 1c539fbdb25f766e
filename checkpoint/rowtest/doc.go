// Package rowtest is what every keeper of gateways' rows must pass.
package rowtest
