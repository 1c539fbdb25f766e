//go:build clients

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
)

// The Python client keeps documents of mixed _ids apart and every digit of theirs, and resumes.
func TestPythonClientAgainstARealNode(t *testing.T) {
	r := newRig(t, devmongo.Config{})
	n := r.beginWith(nil)
	n.status()
	for i, id := range mixed() {
		if _, err := r.coll("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "n", Value: i}}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tests := exec.CommandContext(ctx, "python3", "-B", "-W", "error", "-m", "unittest", "tests.node")
	tests.Dir = "../../client/python"
	tests.Env = append(os.Environ(), "STREAMER_TEST_ADDRESS=http://"+n.service.Addr(), fmt.Sprintf("STREAMER_TEST_DOCUMENTS=%d", len(mixed())))
	if text, err := tests.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
