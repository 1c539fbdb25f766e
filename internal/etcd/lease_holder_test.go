package etcd

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// FuzzHolder reads any bytes as an owner.
func FuzzHolder(f *testing.F) {
	value, err := encodeOwner("node-a", "a", time.Unix(1_700_000_000, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(value))
	f.Add([]byte("not an owner"))
	f.Fuzz(func(t *testing.T, value []byte) {
		h := holderOf(keyValue("owner/00001", value))
		again, err := encodeOwner(h.Node, h.Process, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if same := holderOf(keyValue("owner/00001", []byte(again))); same != h {
			t.Fatalf("%+v came back as %+v", h, same)
		}
	})
}

func keyValue(key string, value []byte) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(key), Value: value}
}
