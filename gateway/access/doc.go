// Package access controls which clients may subscribe, to which namespaces, and how fast. It is
// independent of transports and of the log.
//
// An [Authenticator] maps the credentials of a peer to an [Identity]: a bearer token (listed in a
// file as a hash, or a JWT signed by a key of a JWKS file) or the subject of a verified client
// certificate. An invalid token is rejected even if the certificate is valid. If none of these is
// configured, every peer has the same anonymous identity without limits.
//
// An identity lists the namespaces that it may subscribe to; the zero Identity may subscribe to
// none. All connections of an identity share its limits in an [Account]: how much it may have open,
// and how long to wait before the next events are sent. Events are never dropped. [Accounts.Open]
// refuses a use above a limit, with the node's defaults for identities without their own.
//
// # Files
//
// Certificates, keys, tokens and key sets are checked (stat) whenever they are used and reloaded
// when they have changed; no goroutine watches them. If a changed file is invalid, the previous
// content stays in force, the error is logged once, and Err returns it until the file is valid. At
// startup an invalid file is an error.
//
// [Authenticator.Hold] ends the context of an open connection when its token or certificate
// expires, and soon after its token or key is removed or its rights change. The client reconnects
// at its position and loses nothing.
//
// # JSON Web Tokens
//
// Tokens (RFC 7519) are verified with the public keys of a key set (RFC 7517). Signatures are
// RS256, ES256 or EdDSA. Each key has one algorithm, whatever the token's header says. A token must
// expire, and must name the expected issuer and one of the expected audiences. Keys are read from a
// file and never fetched.
//
// # Blocking
//
// Only the goroutine that reloads a file waits for it; others use the previous content.
//
// # Not obvious, and the tests that guard it
//
//   - All output is narrowed to the identity's namespaces: losses, renames, notices, gaps,
//     subscribers. Texts that wrap a driver's error stay in the log
//     (TestTenantsSeeNothingOfEachOther, fault.TestClientsAreToldWhatIsTheirs)
package access
