package preflight

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/retention"
)

// checked runs the check of a store with a configuration, as Run does.
func checked(t *testing.T, url string) Result {
	t.Helper()
	all := checks(&backend.Conn{Config: config.Config{Retention: config.Retention{Store: url}}}, Source{}, 0)
	i := slices.IndexFunc(all, func(c check) bool { return c.Name == "retention" })
	return all[i].execute(t.Context())
}

// Each fault of a bucket has a code, and is a warning: a node starts without its bucket.
func TestBucketsAreChecked(t *testing.T) {
	closed := devmongotest.FreeAddress()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
	t.Setenv("AWS_CONFIG_FILE", "/nowhere")
	for secret, want := range map[string]fault.Code{"": fault.RetentionForbidden, "hunter2hunter2": fault.RetentionUnreachable} {
		id := strings.Repeat("k", min(1, len(secret)))
		t.Setenv("AWS_ACCESS_KEY_ID", id)
		t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
		url := "s3://log/x?endpoint=http://" + closed
		if _, err := reachBucket(t.Context(), url); fault.Of(err) != want {
			t.Errorf("%v, not %s", err, want)
		}
		if r := checked(t, url); r.Level != Warn || r.Code != want || r.Remedy == "" {
			t.Errorf("%+v, not a warning of %s", r, want)
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
	none := filepath.Join(root, segments, "00000000000000000001")
	told(none, "is none")
	if r := checked(t, "file://"+none); r.Level != Warn || r.Code != fault.RetentionStore || r.Remedy == "" { // a node starts without it
		t.Errorf("%+v", r)
	}
}

// A store whose segments cannot be counted, for example because there are too many, can be used.
func TestUncountedSegmentsAreNoFault(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	chain := filepath.Join(root, "v1/a/1")
	if err := os.MkdirAll(chain, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(chain, "seg"), nil, 0o700); err != nil { // which cannot be listed
		t.Fatal(err)
	}
	if r := checked(t, "file://"+root); r.Level != OK || !strings.Contains(r.Text, "may write into "+root+"; its segments were not counted: list v1/a/1/seg: ") {
		t.Errorf("%+v", r)
	}
}
