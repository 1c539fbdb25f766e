package listen

import "github.com/mongostream/streamer/internal/config"

const (
	// ownFiles are files that a node keeps for itself: its connections to MongoDB, etcd and the
	// targets of sinks, certificates, the log.
	ownFiles = 100
	// leastConnections are those that a server accepts whatever the limit.
	leastConnections = 8
)

// Files returns how many files a node may need at once and how many its process may have. Where it
// may have fewer, its servers accept fewer connections.
func Files(cfg config.Config) (needed, limit int) {
	return ownFiles + 2*cfg.MongoDB.MaxStreams + demand(cfg), openFiles()
}

// demand returns how many connections the node's servers accept together, unless files are short.
func demand(cfg config.Config) int {
	all := connections(cfg.HTTP.MaxClients)
	if cfg.HTTP.ProbesListen != "" {
		all += spareConnections
	}
	if cfg.GRPC.Listen != "" {
		all += connections(cfg.Gateway.MaxSessions)
	}
	return all
}

// fitting returns how many of the connections that a server wants it may accept: all, or its share
// of what the limit leaves.
func fitting(wanted, needed, demand, limit int) int {
	if limit >= needed {
		return wanted
	}
	left := max(limit-(needed-demand), limit/2)
	return max(wanted*left/demand, leastConnections)
}
