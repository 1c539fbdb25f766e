// Package keyring keeps in MongoDB the keys that seal cursors. They are one document, which stands beside the origin of the marks, so that a
// rotation adds one and drops others in one write, of which the first is taken where several nodes rotate at once.
package keyring
