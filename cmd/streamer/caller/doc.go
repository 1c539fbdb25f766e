// Package caller is how commands ask a node over HTTP that asks who they are: with a token, a certificate of their own, and the authorities
// that the node's certificate must come from.
//
// Files are read when they are needed, so that a command that runs for days shows the token and the certificate that are good then. A
// token goes over TLS only, or to this machine.
package caller
