package operator

import (
	"context"
	"errors"
	"io"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cmd/streamer/operator/assembly"
	"github.com/mongostream/streamer/cmd/streamer/operator/form"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/place"
)

// askRoster reads what the nodes have in common.
func askRoster(ctx context.Context, cfg config.Config) (*assembly.Assembly, error) {
	at := place.New(cfg, "operator", form.Logger(cfg))
	defer at.Close()
	store, err := at.OpenRoster(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	view, err := store.View(ctx)
	if errors.Is(err, checkpoint.ErrNoOrigin) {
		return nil, fault.Newf(fault.ClusterUnknown, "no node of cluster %s has been at this etcd", cfg.Cluster.ID)
	}
	if err != nil {
		return nil, err
	}
	return assembly.Of(cfg.Cluster.ID, view), nil
}

// showPlan prints what the nodes have in common.
func showPlan(ctx context.Context, w io.Writer, file, output string, environment []string) error {
	cfg, err := config.Load(file, environment)
	if err != nil {
		return err
	}
	shared, err := askRoster(ctx, cfg)
	if err != nil {
		return err
	}
	return form.Printed(w, output, shared, shared.Write)
}
