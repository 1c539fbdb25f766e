package devetcd

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// RunMember runs a member of a cluster until ctx ends, which is no error, or until etcd fails. The
// file is one of etcd's own configuration files, so that an etcd of another version can run the
// same member.
func RunMember(ctx context.Context, file string) error {
	c, err := embed.ConfigFromFile(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.EnableGRPCGateway = false
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer etcd.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return fmt.Errorf("serve etcd: %w", err)
	case <-etcd.Server.StopNotify():
		return nil // removed from its cluster
	}
}
