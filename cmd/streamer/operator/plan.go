package operator

import (
	"context"
	"errors"
	"io"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
)

// readClusterView reads the nodes' shared state.
func readClusterView(ctx context.Context, cfg config.Config) (*clusterView, error) {
	conn := backend.New(cfg, "operator", newLogger(cfg))
	defer conn.Close()
	store, err := conn.OpenRoster(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	view, err := store.View(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return nil, fault.Newf(fault.ClusterUnknown, "no node of cluster %s has used this etcd", cfg.Cluster.ID)
	}
	if err != nil {
		return nil, err
	}
	return newClusterView(cfg.Cluster.ID, view), nil
}

// showPlan prints the nodes' shared state.
func showPlan(ctx context.Context, w io.Writer, file, output string, environment []string) error {
	cfg, err := config.Load(file, environment)
	if err != nil {
		return err
	}
	shared, err := readClusterView(ctx, cfg)
	if err != nil {
		return err
	}
	return printResult(w, output, shared, shared.write)
}
