package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/etcd"
)

// leaseTTL is the lease TTL of a fleet's nodes: short, so that a demo shows the takeover from a
// lost node.
const leaseTTL = 3 * time.Second

// A fleet is the nodes of a cluster, each a process.
type fleet struct {
	nodes  []*node
	client *etcd.Client
	roster *etcd.ClusterStore
}

// A node is one of them, with the same addresses in each life: those of the first.
type node struct {
	id, grpc    string
	http        string
	arguments   []string // of this program
	environment []string
	notes       io.Writer
	telling     *os.File // where a process tells its addresses, nil where nobody asks

	command *exec.Cmd
	exited  chan error // gets how the process ended
}

// newFleet makes the nodes of a cluster on the parts, and starts them. The first one has the
// requested addresses, if they are free.
func (d *demo) newFleet(ctx context.Context, p *parts) (*fleet, error) {
	client, err := etcd.Dial(ctx, etcd.Config{Endpoints: p.etcd.Endpoints(), Prefix: "/streamer", Cluster: "streamer"})
	if err != nil {
		return nil, err
	}
	f := &fleet{client: client, roster: etcd.NewClusterStore(client, etcd.ClusterConfig{Partitions: d.partitions})}
	for i := range d.nodes {
		nd := &node{id: fmt.Sprintf("node-%d", i+1), http: anyPort, grpc: anyPort, arguments: []string{"node", d.target.file()}, notes: d.log}
		if i == 0 {
			nd.http, nd.grpc = d.http, d.grpc
		}
		nd.environment = append(d.settings(p),
			"STREAMER_NODE_ID="+nd.id, "STREAMER_HTTP_LISTEN="+nd.http, "STREAMER_GRPC_LISTEN="+nd.grpc, "STREAMER_LOG_LEVEL=error",
			"STREAMER_GRPC_HEARTBEAT_TIMEOUT="+leaseTTL.String(), fmt.Sprintf("STREAMER_CLUSTER_EXPECTED_NODES=%d", d.nodes),
			"STREAMER_CLUSTER_LEASE_TTL="+leaseTTL.String(), "STREAMER_CLUSTER_SETTLE_TIME=2s",
		)
		if len(d.wedged) > 0 {
			nd.environment = append(nd.environment, wedgeSettings()...)
		}
		if d.documents > 0 { // the documents of one subscriber fill half of the time; subscribers that have broken off may read the rest again
			rate := 2 * float64(d.documents*(1+d.gateways)) / max(1, d.length.Seconds())
			nd.environment = append(nd.environment, fmt.Sprintf("STREAMER_RESCAN_RATE=%d", max(1000, int(rate))))
		}
		f.nodes = append(f.nodes, nd)
	}
	told := make([]*os.File, len(f.nodes))
	for i, nd := range f.nodes {
		if told[i], err = nd.begin(); err != nil {
			return nil, errors.Join(err, f.close())
		}
	}
	for i, nd := range f.nodes {
		if err := nd.meet(told[i]); err != nil {
			return nil, errors.Join(err, f.close())
		}
	}
	return f, nil
}

// begin starts a node's first process, which tells where it listens: later ones listen there, too.
func (n *node) begin() (told *os.File, err error) {
	told, telling, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", n.id, err)
	}
	n.telling = telling
	err = n.start()
	n.telling = nil
	_ = telling.Close() // the process has its own
	n.arguments = append(n.arguments, againArgument)
	return told, err
}

// meet waits for the first output of a node's first process.
func (n *node) meet(told *os.File) error {
	defer func() { _ = told.Close() }()
	if err := told.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return fmt.Errorf("wait for %s: %w", n.id, err)
	}
	if _, err := fmt.Fscanln(told, &n.http, &n.grpc); err != nil {
		return fmt.Errorf("%s has not begun to listen: %w", n.id, err)
	}
	n.environment = append(n.environment, "STREAMER_HTTP_LISTEN="+n.http, "STREAMER_GRPC_LISTEN="+n.grpc)
	return nil
}

// addresses are where gateways and browsers reach the nodes.
func (f *fleet) addresses() (gateways, sites []string) {
	for _, n := range f.nodes {
		gateways, sites = append(gateways, n.grpc), append(sites, n.http)
	}
	return gateways, sites
}

// start starts a node's process.
func (n *node) start() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	n.command = exec.Command(program, n.arguments...) //nolint:noctx // a signal ends it
	n.command.Env = append(os.Environ(), n.environment...)
	n.command.Stderr = n.notes
	if n.telling != nil {
		n.command.Stdout = n.telling
	}
	if err := n.command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.id, err)
	}
	n.exited = make(chan error, 1)
	go func(c *exec.Cmd, exited chan<- error) { exited <- c.Wait() }(n.command, n.exited)
	return nil
}

// signal sends a signal to a node's process.
func (n *node) signal(s syscall.Signal) error {
	if err := n.command.Process.Signal(s); err != nil {
		return fmt.Errorf("%s to %s: %w", s, n.id, err)
	}
	return nil
}

// end sends a signal and waits for the process to end of it.
func (n *node) end(s syscall.Signal) error {
	if err := n.signal(s); err != nil {
		return err
	}
	err := <-n.exited
	n.command = nil
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == s {
			return nil // one that has only just started knows no other end
		}
	}
	if err != nil {
		return fmt.Errorf("%s ended: %w", n.id, err)
	}
	return nil
}

// close ends the nodes: the ones that run softly.
func (f *fleet) close() error {
	var errs []error
	for _, n := range f.nodes {
		if n.command != nil {
			errs = append(errs, n.end(syscall.SIGTERM))
		}
	}
	return errors.Join(append(errs, f.client.Close())...)
}

// settled waits until every partition is served by a member that says so, and none of them at the
// epochs given. It returns the epochs.
func (f *fleet) settled(ctx context.Context, before map[change.Partition]change.Epoch) (map[change.Partition]change.Epoch, error) {
	epochs := make(map[change.Partition]change.Epoch)
	err := f.until(ctx, func(view cluster.View) bool {
		for p, o := range view.Owners {
			epochs[change.Partition(p)] = o.Epoch
		}
		return serves(view, before)
	})
	return epochs, err
}

// until waits until a view is as wanted.
func (f *fleet) until(ctx context.Context, wanted func(cluster.View) bool) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if view, err := f.roster.View(ctx); err == nil && wanted(view) {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for partitions to be served: %w", context.Cause(ctx))
		}
	}
}

// serves reports whether every partition is owned, not at the epochs of before, and reported by its
// owner.
func serves(view cluster.View, before map[change.Partition]change.Epoch) bool {
	for i, owner := range view.Owners {
		p := change.Partition(i)
		if old, known := before[p]; owner == (cluster.Owner{}) || known && owner.Epoch == old {
			return false
		}
		if !reported(view, p) {
			return false
		}
	}
	return len(view.Owners) > 0
}

// reported reports whether a partition's owner says that it serves it.
func reported(view cluster.View, p change.Partition) bool {
	owner := view.Owners[p]
	return slices.ContainsFunc(view.Members, func(s cluster.Member) bool {
		return s.Process == owner.Process && slices.ContainsFunc(s.Held, func(h cluster.HeldPartition) bool {
			return h.Partition == p && h.Epoch == owner.Epoch && h.State != string(cluster.StatusStarting)
		})
	})
}

// victim chooses one of the nodes that own something, and returns what with its epochs.
func (f *fleet) victim(ctx context.Context, random *rand.Rand) (*node, map[change.Partition]change.Epoch, error) {
	view, err := f.roster.View(ctx)
	if err != nil {
		return nil, nil, err
	}
	owned := make(map[string]map[change.Partition]change.Epoch)
	for p, o := range view.Owners {
		if owned[o.Node] == nil {
			owned[o.Node] = make(map[change.Partition]change.Epoch)
		}
		owned[o.Node][change.Partition(p)] = o.Epoch
	}
	owners := slices.DeleteFunc(slices.Clone(f.nodes), func(n *node) bool { return len(owned[n.id]) == 0 })
	if len(owners) == 0 {
		return nil, nil, errors.New("nobody owns a partition")
	}
	n := owners[random.IntN(len(owners))]
	return n, owned[n.id], nil
}
