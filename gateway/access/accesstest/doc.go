// Package accesstest makes certificates for tests of what serves and connects over TLS.
package accesstest
