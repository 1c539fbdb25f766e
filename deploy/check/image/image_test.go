package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// The archive holds an image whose binary runs, for a user without rights, and the same binary
// gives the same archive.
func TestImageRunsAndIsReproducible(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary := filepath.Join(dir, "streamer")
	compile := exec.Command("make", "-s", "-C", "../../..", "build", "VERSION=v0.0.0-image", "OUT="+binary)
	if text, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var archives [2][]byte
	for i := range archives {
		path := filepath.Join(dir, "image.tar")
		if err := run([]string{"-version", "v0.0.0-image", "-o", path, "linux/" + runtime.GOARCH + "=" + binary}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		archives[i] = data
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the same binary gives different archives")
	}

	into := filepath.Join(dir, "layout")
	unpack(t, bytes.NewReader(archives[0]), into)
	path, err := layout.FromPath(into)
	if err != nil {
		t.Fatal(err)
	}
	index, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	inner, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = inner.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	if p := manifest.Manifests[0].Platform; p.OS != "linux" || p.Architecture != runtime.GOARCH {
		t.Errorf("the image is for %s", p)
	}
	image, err := inner.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || len(config.Config.Entrypoint) != 1 {
		t.Errorf("user %q, entrypoint %q", config.Config.User, config.Config.Entrypoint)
	}
	files := filepath.Join(dir, "root")
	unpack(t, mutate.Extract(image), files)
	program := exec.Command(filepath.Join(files, config.Config.Entrypoint[0]), "version")
	program.Env = []string{}
	text, err := program.CombinedOutput()
	if err != nil || strings.TrimSpace(string(text)) != "streamer v0.0.0-image" {
		t.Errorf("%v: %s", err, text)
	}
	if list, err := exec.Command("go", "version", "-m", binary).Output(); err != nil || !bytes.Contains(list, []byte("CGO_ENABLED=0")) {
		t.Errorf("the binary may not be static: %v", err)
	}
	if roots, err := os.ReadFile(filepath.Join(files, "etc/ssl/certs/ca-certificates.crt")); err != nil || bytes.Count(roots, []byte("BEGIN CERTIFICATE")) < 100 {
		t.Errorf("the image trusts nobody: %v", err)
	}
}

// unpack writes the files of a tar below a folder.
func unpack(t *testing.T, from io.Reader, into string) {
	t.Helper()
	for r := tar.NewReader(from); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(into, filepath.Clean("/"+header.Name))
		if header.Typeflag == tar.TypeDir {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, os.FileMode(header.Mode&0o777))); err != nil {
			t.Fatal(err)
		}
	}
}
