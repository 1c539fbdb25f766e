// Package signed verifies JSON Web Tokens (RFC 7519) with the public keys of a key set (RFC 7517).
//
// Signatures are RS256, ES256 or EdDSA, and a key is for one of them whatever a token says of itself: no token chooses how it is looked at.
// A token must expire, and be of the issuer and for one of the audiences that are expected. Keys come from a file; nothing is fetched.
package signed
