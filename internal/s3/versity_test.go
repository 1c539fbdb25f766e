//go:build s3

package s3

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	devversity "github.com/mongostream/streamer/dev/versity"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/retention"
	"github.com/mongostream/streamer/retention/retentiontest"
)

// versity starts a server: make s3 builds it and names it.
func versity(t *testing.T) *devversity.Server {
	t.Helper()
	server, err := devversity.Start(os.Getenv("STREAMER_TEST_VERSITYGW"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	t.Setenv("AWS_ACCESS_KEY_ID", devversity.Access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", devversity.Secret)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return server
}

func open(t *testing.T, url string) *Bucket {
	t.Helper()
	b, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestVersityGatewayIsAStore(t *testing.T) {
	server := versity(t)
	var stores atomic.Int32
	retentiontest.TestStore(t, func(t *testing.T) retention.Store {
		return open(t, server.URL(fmt.Sprintf("suite/%d", stores.Add(1))))
	})
}

func TestVersityGatewayPassesTheProbe(t *testing.T) {
	b := open(t, versity(t).URL("p"))
	versioned, err := retention.ChainAt(b, "v1/x/1").Probe(t.Context())
	if err != nil || versioned {
		t.Fatal(versioned, err)
	}
	if left, _, err := b.List(t.Context(), "v1/x/1/probe", ""); err != nil || len(left) != 0 {
		t.Errorf("the probe left %v, %v", left, err)
	}
}

// Each cause has its code, and no text has a secret.
func TestVersityGatewayRefusesWithCodes(t *testing.T) {
	server := versity(t)
	url := server.URL("x")
	for name, c := range map[string]struct {
		url, key string
		want     fault.Code
	}{
		"another bucket":     {strings.Replace(url, devversity.Bucket, "nowhere", 1), devversity.Secret, fault.RetentionBucket},
		"another region":     {url + "&region=eu-central-1", devversity.Secret, fault.RetentionRegion},
		"another key":        {url, "wrong-" + devversity.Secret, fault.RetentionForbidden},
		"nobody at the port": {strings.Replace(url, server.Address(), "127.0.0.1:1", 1), devversity.Secret, fault.RetentionUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_SECRET_ACCESS_KEY", c.key)
			b := open(t, c.url)
			_, _, getErr := b.Get(t.Context(), "seg/1", 0, 10)
			_, _, listErr := b.List(t.Context(), "seg", "")
			_, nowErr := b.Now(t.Context())
			for verb, err := range map[string]error{"put": b.Put(t.Context(), "seg/1", []byte("x")), "get": getErr, "list": listErr, "now": nowErr} {
				if got := fault.Of(err); got != c.want {
					t.Errorf("%s: %v", verb, err)
				} else if strings.Contains(err.Error(), c.key) {
					t.Errorf("%s: the error shows the secret: %v", verb, err)
				}
			}
		})
	}
}

// An object is whole or not there, however its server ends.
func TestVersityGatewayKilledInAPutLeavesNoPart(t *testing.T) {
	server := versity(t)
	b := open(t, server.URL("k"))
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	for round := range 5 {
		key, done := fmt.Sprintf("seg/%d", round), make(chan error, 1)
		go func() { done <- b.Put(t.Context(), key, data) }()
		server.Kill()
		<-done // whatever it is: the object decides
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		got, about, err := b.Get(t.Context(), key, 0, int64(len(data))+1)
		if whole := err == nil && bytes.Equal(got, data) && about.Size == int64(len(data)); !whole && !errors.Is(err, retention.ErrNotFound) {
			t.Errorf("round %d: %d bytes, %v", round, len(got), err)
		}
	}
}
