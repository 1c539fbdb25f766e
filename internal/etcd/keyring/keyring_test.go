package keyring

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/key"
	"github.com/mongostream/streamer/checkpoint/keytest"
	"github.com/mongostream/streamer/internal/devetcd/devetcdtest"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial connects a client that lives as long as the test.
func dial(t *testing.T, cfg etcd.Config, l *etcdtest.Link) *etcd.Client {
	t.Helper()
	client, err := etcd.DialWith(t.Context(), cfg, l.Options()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

func TestKeysInEtcdAreKept(t *testing.T) {
	endpoints := devetcdtest.Endpoints(t)
	keytest.TestKeeper(t, func(t *testing.T) keytest.Harness {
		cfg := etcd.Config{Endpoints: endpoints, Prefix: devetcdtest.Prefix(t, endpoints), Cluster: "c1"}
		client := dial(t, cfg, &etcdtest.Link{T: t})
		return keytest.Harness{
			Keeper: New(client), Reopen: func() key.Keeper { return New(dial(t, cfg, &etcdtest.Link{T: t})) },
			Damage: func(value []byte) {
				if _, err := client.Driver().Put(t.Context(), cfg.Prefix+"/c1/keys", string(value)); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

// linked returns a keeper whose next transaction the link meets, and one that is not in its way.
func linked(t *testing.T) (*Keeper, *Keeper, *etcdtest.Link) {
	t.Helper()
	endpoints := devetcdtest.Endpoints(t)
	l := &etcdtest.Link{T: t}
	cfg := etcd.Config{Endpoints: endpoints, Prefix: devetcdtest.Prefix(t, endpoints), Cluster: "c1"}
	return New(dial(t, cfg, l)), New(dial(t, cfg, &etcdtest.Link{T: t})), l
}

// made is when a key of these tests was made.
func made() time.Time { return time.Date(2024, time.May, 17, 8, 30, 0, 0, time.UTC) }

func TestKeyWhoseAnswerGotLostIsKnownAsOnesOwn(t *testing.T) {
	keeper, other, l := linked(t)
	muted := l.Mute()
	ctx, cancel := context.WithCancel(t.Context())
	first := key.Set(nil).Next(made())
	answer := make(chan error, 1)
	go func() { answer <- keeper.AddKey(ctx, first) }()
	<-muted
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Fatalf("the answer was lost, and adding returned %v", err)
	}
	if err := keeper.AddKey(t.Context(), first); err != nil {
		t.Errorf("added again: %v", err)
	}
	if keys, err := other.Keys(t.Context()); err != nil || len(keys) != 1 || keys[0] != first {
		t.Errorf("%v, %v", keys, err)
	}
}

func TestKeyThatArrivesLateUndoesNothing(t *testing.T) {
	keeper, other, l := linked(t)
	held, deliver := l.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	late, taken := key.Set(nil).Next(made()), key.Set(nil).Next(made())
	answer := make(chan error, 1)
	go func() { answer <- keeper.AddKey(ctx, late) }()
	<-held
	if err := other.AddKey(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	deliver()
	if keys, err := other.Keys(t.Context()); err != nil || len(keys) != 1 || keys[0] != taken {
		t.Errorf("%v, %v", keys, err)
	}
	if err := keeper.AddKey(t.Context(), late); !errors.Is(err, checkpoint.ErrKeysMoved) || strings.Contains(err.Error(), "STRM-") {
		t.Errorf("%v", err)
	}
}
