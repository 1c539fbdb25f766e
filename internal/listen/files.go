package listen

import "github.com/mongostream/streamer/internal/config"

const (
	// ownFiles is the number of files that a node reserves for itself: its connections to MongoDB,
	// etcd and the targets of sinks, certificates, the log.
	ownFiles = 100
	// leastConnections is the number of connections that a server accepts whatever the limit.
	leastConnections = 8
)

// Files returns how many open files a node may need and how many its process may have. If the limit
// is lower, its servers accept fewer connections.
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

// fitting returns how many of the wanted connections a server may accept: all, or its share of the
// files that the limit leaves.
func fitting(wanted, needed, demand, limit int) int {
	if limit >= needed {
		return wanted
	}
	left := max(limit-(needed-demand), limit/2)
	return max(wanted*left/demand, leastConnections)
}
