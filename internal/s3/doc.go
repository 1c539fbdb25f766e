// Package s3 keeps the objects of the retained log in a bucket, of AWS or of another store that
// speaks S3's protocol.
//
// A Bucket uses little of the protocol: PUT with `If-None-Match: *`, GET of a range, LIST (version
// 2) from a name on, and DELETE. It never overwrites an object and never uploads in parts. It sends
// each request once, because the caller must look under the key after an answer that was lost.
// Every PUT carries the SHA-256 of its bytes, which the store checks.
//
// Credentials come from the environment, from AWS's file of credentials, or from the role of the
// machine; no text that the package writes has a secret.
package s3
