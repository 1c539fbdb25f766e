package file_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/file"
)

// BenchmarkPublish appends lines of 400 bytes, as many at a time as are due.
func BenchmarkPublish(b *testing.B) {
	for _, batch := range []struct {
		name  string
		lines int
	}{{"64 lines", 64}, {"4096 lines", 4096}} {
		b.Run(batch.name, func(b *testing.B) {
			to := file.New(file.Config{Path: filepath.Join(b.TempDir(), "changes"), MaxSize: 1 << 40})
			defer to.Close()
			var written sync.WaitGroup
			messages := make([]*sink.Message, batch.lines)
			for i := range messages {
				messages[i] = &sink.Message{Value: []byte(strings.Repeat("x", 400))}
				sink.Report(messages[i], func(err error) {
					if err != nil {
						b.Error(err)
					}
					written.Done()
				})
			}
			b.ReportAllocs()
			for n := 0; n < b.N; n += batch.lines {
				written.Add(batch.lines)
				for _, m := range messages {
					to.Publish(b.Context(), m)
				}
				written.Wait()
			}
		})
	}
}
