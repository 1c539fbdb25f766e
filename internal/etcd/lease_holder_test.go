package etcd

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// FuzzHolder reads any bytes as an owner.
func FuzzHolder(f *testing.F) {
	value, err := encodeOwner("node-a", "a", time.Unix(1_700_000_000, 0), "")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(value))
	f.Add([]byte("not an owner"))
	f.Fuzz(func(t *testing.T, value []byte) {
		h := holderOf(keyValue("owner/00001", value))
		again, err := encodeOwner(h.Node, h.Process, time.Time{}, h.Trace)
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

func TestOwnersOfEarlierVersionsAreRead(t *testing.T) {
	const text, trace = `{"node":"n","process":"p","claimed_at":"2023-11-14T22:13:20Z"}`, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if h := holderOf(keyValue("owner/00001", []byte(text))); h.Node != "n" || h.Process != "p" || h.Trace != "" {
		t.Errorf("%+v", h)
	}
	at := time.Unix(1_700_000_000, 0)
	if value, err := encodeOwner("n", "p", at, ""); value != text || err != nil {
		t.Errorf("without a trace the key is %s, %v", value, err)
	}
	value, err := encodeOwner("n", "p", at, trace)
	if err != nil {
		t.Fatal(err)
	}
	if h := holderOf(keyValue("owner/00001", []byte(value))); h.Node != "n" || h.Process != "p" || h.Trace != trace {
		t.Errorf("%+v", h)
	}
}
