package delivery

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/mongostream/streamer/change"
)

// What is remembered of one document is not that of another one whose key has the same hash: a
// tenant can choose such _ids.
func TestRememberedDocumentsAreNotTakenForEachOther(t *testing.T) {
	text := func(end string) change.Value {
		s := "01234\xde\xd4\x6d\xe9\x83\x90\x97\xdb" + end // where these bytes are, a factor of xxh3 is zero, whatever follows
		return change.Value{Type: 0x02, Data: append(binary.LittleEndian.AppendUint32(nil, uint32(len(s)+1)), s+"\x00"...)}
	}
	ns, a, b := change.Namespace{DB: "d", Coll: "c"}, text("12345678"), text("abcdefgh")
	s := &Session{hub: New(Config{Partitions: 1}, nil)}
	s.part = s.hub.memory.Enter("", s.mayResume)
	sub := &Subscription{session: s, stream: &stream{Session: s}, known: &knownDocuments{whole: true, of: make(map[string]knownDocument)}}
	if xxh3.Hash(bytes.Clone(sub.known.key(ns, a))) != xxh3.Hash(sub.known.key(ns, b)) {
		t.Fatalf("the hashes differ: %x", sub.known.key(ns, a))
	}
	sub.know(ns, a)
	sub.forget(ns, b)
	if len(sub.known.of) != 1 {
		t.Error("a document was forgotten with another one")
	}
}
