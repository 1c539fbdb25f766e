package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the number of the user and the group in the image; deploy/kubernetes has the same.
const user = 65532

// epoch is the time of everything in the image: an image depends on what is in it and not on when
// it was built.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// A build says what goes into an archive.
type build struct {
	version  string
	revision string
	binaries []binaryFor
}

// A binaryFor is a static binary and where it runs.
type binaryFor struct {
	platform v1.Platform
	path     string
}

// index makes the image of each platform.
func (b build) index() (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, binary := range b.binaries {
		image, err := b.image(binary.platform, binary.path)
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", binary.platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &binary.platform}})
	}
	return index, nil
}

func (b build) image(platform v1.Platform, binary string) (v1.Image, error) {
	files, err := root(binary)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: epoch()}, CreatedBy: "streamer " + b.version}}); err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created = v1.Time{Time: epoch()}
	file.OS, file.Architecture, file.Variant = platform.OS, platform.Architecture, platform.Variant
	file.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		Entrypoint: []string{"/usr/local/bin/streamer"},
		Cmd:        []string{"run"},
		WorkingDir: "/",
		Env:        []string{"PATH=/usr/local/bin"},
		ExposedPorts: map[string]struct{}{
			"8080/tcp": {}, "9090/tcp": {},
		},
		StopSignal: "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "streamer",
			"org.opencontainers.image.version":  b.version,
			"org.opencontainers.image.revision": b.revision,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, file)
}

// root is the file system of the image as a tar.
func root(binary string) ([]byte, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		mode int64
		data []byte
	}{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, fmt.Appendf(nil, "streamer:x:%d:\n", user)},
		{"etc/passwd", 0o644, fmt.Appendf(nil, "streamer:x:%d:%d::/:/sbin/nologin\n", user, user)},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()},
		{"usr/", 0o755, nil},
		{"usr/local/", 0o755, nil},
		{"usr/local/bin/", 0o755, nil},
		{"usr/local/bin/streamer", 0o755, program},
	} {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: epoch(), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

// authorities are the certificate authorities that every certificate may come from. Those with
// constraints are left out: a file of PEM blocks cannot express them.
func authorities() []byte {
	var out bytes.Buffer
	for authority := range bundle.Roots() {
		if authority.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate}) // a buffer takes everything
		}
	}
	return out.Bytes()
}

// write writes the index as an OCI archive: a tar of an OCI image layout.
func write(index v1.ImageIndex, version, path string) error {
	dir, err := os.MkdirTemp("", "streamer-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	into, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})
	if err := into.AppendIndex(index, named); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := archive(os.DirFS(dir), out); err != nil {
		_ = out.Close()
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return out.Close()
}

// archive writes the files as a tar, in the order of their names.
func archive(files fs.FS, out io.Writer) error {
	w := tar.NewWriter(out)
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		header := &tar.Header{Name: name, Mode: 0o644, ModTime: epoch(), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if entry.IsDir() {
			header.Name, header.Mode, header.Typeflag = name+"/", 0o755, tar.TypeDir
			return w.WriteHeader(header)
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		header.Size = int64(len(data))
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
