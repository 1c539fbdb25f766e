package main

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Every image gets the digest that its tag has in the registry, also one that had another; what is
// built here has none. If one image cannot be found the file stays.
func TestImagesArePinned(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	tag, err := name.NewTag(host + "/a/b:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	index, err := random.Index(10, 1, 2)
	if err == nil {
		err = remote.WriteIndex(tag, index)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "compose.yaml")
	const form = "services:\n  a:\n    image: %[1]s\n  b:\n    image: %[2]s\n  c:\n    image: streamer:dev\n"
	write := func(images ...any) {
		if err := os.WriteFile(path, fmt.Appendf(nil, form, images...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(tag.Name(), tag.Name()+"@sha256:"+strings.Repeat("0", 64))
	if err := pin(path); err != nil {
		t.Fatal(err)
	}
	pinned := tag.Name() + "@" + digest.String()
	want := fmt.Sprintf(form, pinned, pinned)
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	write(tag.Name(), host+"/a/missing:1.2.3")
	before := fmt.Sprintf(form, tag.Name(), host+"/a/missing:1.2.3")
	if err := pin(path); err == nil || !strings.Contains(err.Error(), "find digest of "+host+"/a/missing:1.2.3") {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != before {
		t.Errorf("%s, %v; want it as it was", got, err)
	}
}
