package listen

import (
	"testing"

	"github.com/mongostream/streamer/internal/config"
)

// What the servers accept together leaves a node its own files, whatever the limit of open files.
func TestConnectionsFitTheLimitOfOpenFiles(t *testing.T) {
	var cfg config.Config
	cfg.HTTP.MaxClients, cfg.Gateway.MaxSessions, cfg.MongoDB.MaxStreams = 1000, 1000, 16
	cfg.GRPC.Listen, cfg.HTTP.ProbesListen = ":1", ":2"
	needed, _ := Files(cfg)
	wanted := []int{connections(cfg.HTTP.MaxClients), connections(cfg.Gateway.MaxSessions), spareConnections}
	for _, limit := range []int{100, 200, 256, 1024, needed - 1, needed, 1 << 20} {
		all := 0
		for _, w := range wanted {
			n := fitting(w, needed, demand(cfg), limit)
			if limit >= needed && n != w || n < leastConnections {
				t.Errorf("limit %d: %d of %d", limit, n, w)
			}
			all += n
		}
		own := needed - demand(cfg)
		if all+min(own, limit/2-len(wanted)*leastConnections) > limit {
			t.Errorf("limit %d: %d connections leave less than the node's own", limit, all)
		}
	}
}
