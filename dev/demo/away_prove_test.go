//go:build prove

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
)

// A subscriber that is away until the oplog has been replaced several times has every change once
// if the log is retained; otherwise it is told of a loss, and the demo fails.
func TestProveSubscriberThatIsAwayHasEverythingIfTheLogIsRetained(t *testing.T) {
	for _, retain := range []bool{true, false} {
		args := []string{"-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-oplog", "1", "-for", "8s", "-o", "json"}
		if retain {
			args = append(args, "-retention")
		}
		var out bytes.Buffer
		err := command(t.Context(), args, &out, io.Discard)
		var s summary
		if broken := json.Unmarshal(out.Bytes(), &s); broken != nil || s.Away == nil {
			t.Fatalf("%s: %v, %v", out.Bytes(), broken, err)
		}
		if s.Missing > 0 || s.Away.Wraps < 1 || (err == nil) != retain || (len(s.Away.Losses) == 0) != retain || (s.Away.Missing == 0) != retain || s.Away.Duplicates > 0 {
			t.Errorf("retained: %t: %+v, %v", retain, s.Away, err)
		}
	}
}
