// Package access decides who may subscribe, to what, and how fast; it speaks neither gRPC nor the log.
//
// An [Authenticator] makes an [Identity] of what a peer shows: a bearer token (from a file of hashes, or a JWT signed by a key of a JWKS
// file) or the subject of a verified client certificate. A token that is shown must be good: a bad one is never made up for by a
// certificate. Without any of it configured everybody is one anonymous identity without limits.
//
// An identity says which namespaces may be subscribed to; what it does not name is forbidden, and the zero Identity may nothing. Its limits
// are those of all its connections together: they share an [Account], which says how long to wait before the next events are sent. It
// never says to drop any.
//
// # Files
//
// Certificates, keys, tokens and key sets are looked at (stat) whenever they are needed and read again when they have changed; no
// goroutine watches them. What cannot be used leaves what was in force before, is logged once, and stands in Err until the file is in order.
// At the start it is an error.
//
// A connection outlives what let it in. [Authenticator.Hold] ends its context when the token or certificate expires, and soon after its
// token was taken out of the file, its key out of the key set, or its rights changed; the client comes back with its position and loses nothing.
//
// # Who may block
//
// Nobody waits for a file but the one who reads it; the others meanwhile go by what was read before.
package access
