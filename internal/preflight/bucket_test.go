package preflight

import (
	"net"
	"strings"
	"testing"

	"github.com/mongostream/streamer/fault"
)

// What is wrong with a bucket is found without a node, and has a code.
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
