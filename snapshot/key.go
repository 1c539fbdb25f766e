package snapshot

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// maxKey bounds the ids of subscriptions that are kept as they are, in bytes of JSON, and hashed
// marks the others.
const (
	maxKey = 320
	hashed = "sha256:"
)

// Key returns the id of a subscription as checkpoints keep it: itself if it is short, else a hash
// of it. It is the key of itself.
func Key(id string) string {
	if isKey(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hashed + base64.RawURLEncoding.EncodeToString(sum[:24])
}

func isKey(id string) bool {
	if rest, is := strings.CutPrefix(id, hashed); is {
		sum, err := base64.RawURLEncoding.DecodeString(rest)
		return err == nil && len(sum) == 24
	}
	size := 0
	for _, b := range []byte(id) {
		if size++; b < ' ' || b > '~' || strings.IndexByte(`"\\<>&`, b) >= 0 {
			size += 5
		}
	}
	return size <= maxKey
}

// Named returns progress of a checkpoint with the ids of subscriptions in the place of their keys.
func Named(all []Progress, ids []string) []Progress {
	of := make(map[string]string, len(ids))
	for _, id := range ids {
		of[Key(id)] = id
	}
	named := make([]Progress, len(all))
	for i, p := range all {
		if id, known := of[p.Subscription]; known {
			p.Subscription = id
		}
		named[i] = p
	}
	return named
}
