// Package keyring keeps in etcd the keys that seal cursors. They are one value, <prefix>/<cluster>/keys, so that a rotation adds one and
// drops others in one write, of which etcd takes the first where several nodes rotate at once.
package keyring
