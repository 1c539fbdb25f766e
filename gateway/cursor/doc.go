// Package cursor writes positions so that they can leave the cluster. A resume token holds a document's key; a cursor is the token sealed,
// so that whoever keeps it can resume there and learns nothing from it.
//
//	version 1 | serial of the key 4 | salt 16 | nonce 12 | AES-256-GCM ( fingerprint 8 | cluster time 8 | length 4 | token | 0… ) | tag 16
//
// Everything before the nonce, the partition, N and the cluster are authenticated with it: a cursor opens in the partition of the cluster
// that it was made for, or nowhere. The sealed part is filled up to a multiple of 64 bytes, because the length of a token is that of a
// document's key, and a batch may end at a document that its reader never sees.
//
// # Keys
//
// All nodes of a cluster share numbered secrets (package checkpoint/key): the last one seals, all of them open. No secret seals by itself.
// A [Keyring] derives from it, with a salt of its own, the key that it uses (HKDF, RFC 5869), and takes another salt after 2³¹ cursors:
// random nonces of 12 bytes are good for 2³² messages of one key (NIST SP 800-38D, section 8.3), which busy nodes together send in a day.
//
// # Refusals
//
// What cannot be opened is the fault SessionBadCursor, or SessionOldCursor where its key has been dropped. Refusing costs the same
// whatever a cursor holds: its length is bounded before it is looked at, and nothing of it is believed before its tag is right.
//
// The package does no I/O, starts nothing and knows no clock: whoever holds a Keyring tells it the keys.
package cursor
