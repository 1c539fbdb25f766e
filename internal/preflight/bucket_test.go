package preflight

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/retention"
)

// Each fault of a bucket has a code.
func TestBucketsAreChecked(t *testing.T) {
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
	t.Setenv("AWS_CONFIG_FILE", "/nowhere")
	for secret, want := range map[string]fault.Code{"": fault.RetentionForbidden, "hunter2hunter2": fault.RetentionUnreachable} {
		id := strings.Repeat("k", min(1, len(secret)))
		t.Setenv("AWS_ACCESS_KEY_ID", id)
		t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
		if _, err := reachBucket(t.Context(), "s3://log/x?endpoint=http://"+closed.Addr().String()); fault.Of(err) != want {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

// The check of a folder changes nothing in it or above it.
func TestFoldersAreChecked(t *testing.T) {
	t.Parallel()
	volume := t.TempDir()
	root := filepath.Join(volume, "log")
	told := func(path, want string) {
		t.Helper()
		f, err := reachFolder(t.Context(), "file://"+path)
		if text := (check{}).result(f, err).Text; !strings.Contains(text, want) || (err == nil) != (f.Level == OK) {
			t.Errorf("%s, %v, want %s", text, err, want)
		}
	}
	told(root, "log is missing, and a node makes it")
	told(filepath.Join(root, "below"), "write into the one above: no such file")
	if left, err := os.ReadDir(volume); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	files := retention.NewFiles(root)
	const segments = "v1/a/1/seg"
	for _, key := range []string{segments + "/00000000000000000001", segments + "/00000000000000000002"} {
		if err := files.Put(t.Context(), key, make([]byte, 3<<19)); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-73 * time.Hour)
	if err := os.Chtimes(filepath.Join(root, segments, "00000000000000000002"), long, long); err != nil {
		t.Fatal(err)
	}
	told(root, "log; 1 retained logs, 2 segments, 3 MiB, the oldest one written 3 days ago")
	if err := os.WriteFile(filepath.Join(root, "v1/a/1/floor"), nil, 0o600); err != nil { // where nobody can make a file
		t.Fatal(err)
	}
	told(root, "floor: permission denied")
	told(filepath.Join(root, segments, "00000000000000000001"), "is none")
}
