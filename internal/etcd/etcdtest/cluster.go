package etcdtest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// patience bounds the wait for a member or a leader.
const patience = 3 * time.Minute

// A Cluster is an etcd of several members. Each runs in its own process, and proxies carry the
// traffic between them. It has etcd's default heartbeats and election timeouts.
type Cluster struct {
	t       testing.TB
	token   string
	net     *network
	members []*Member
	made    int // number of members ever made, for their names
}

// StartCluster starts a cluster that lives as long as the test. Its package's TestMain must begin
// with RunMember.
func StartCluster(t testing.TB, members int) *Cluster {
	t.Helper()
	c := &Cluster{t: t, token: rand.Text(), net: newNetwork(t)}
	for range members {
		m := &Member{cluster: c, client: freeAddress(), peer: freeAddress()}
		m.fresh()
		c.members = append(c.members, m)
	}
	for _, m := range c.members {
		m.start("new")
		t.Cleanup(m.kill)
	}
	for _, m := range c.members {
		m.Ready()
	}
	return c
}

// Isolated starts a cluster of three with one member cut off from the others, and returns the
// addresses of all. The first address is not that of the isolated member.
func Isolated(t testing.TB) (endpoints []string) {
	t.Helper()
	c := StartCluster(t, 3)
	victim := c.Follower()
	victim.Isolate()
	for _, m := range c.members {
		if m != victim {
			endpoints = append(endpoints, m.client)
		}
	}
	return append(endpoints, victim.client)
}

// Endpoints are the addresses of all members, for clients.
func (c *Cluster) Endpoints() []string {
	endpoints := make([]string, len(c.members))
	for i, m := range c.members {
		endpoints[i] = m.client
	}
	return endpoints
}

// Members are all members.
func (c *Cluster) Members() []*Member { return slices.Clone(c.members) }

// Leader returns the leader that most of the members follow, as soon as there is one.
func (c *Cluster) Leader() (leader *Member) {
	c.t.Helper()
	c.until("a leader", func() bool {
		votes := make(map[uint64]int)
		ids := make(map[uint64]*Member)
		for _, m := range c.members {
			if status, err := m.status(); err == nil {
				ids[status.Header.MemberId] = m
				votes[status.Leader]++
			}
		}
		for id, n := range votes {
			if n > len(c.members)/2 {
				leader = ids[id]
			}
		}
		return leader != nil
	})
	return leader
}

// Follower returns a member that follows the leader.
func (c *Cluster) Follower() *Member {
	c.t.Helper()
	leader := c.Leader()
	return c.members[slices.IndexFunc(c.members, func(m *Member) bool { return m != leader })]
}

// peers returns the members in the form of etcd's configuration.
func (c *Cluster) peers() string {
	peers := make([]string, len(c.members))
	for i, m := range c.members {
		peers[i] = m.name + "=" + m.url()
	}
	return strings.Join(peers, ",")
}

func (c *Cluster) until(what string, holds func() bool) {
	c.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-timeout.C:
			var members []string
			for _, m := range c.members {
				status, err := m.status()
				members = append(members, fmt.Sprintf("%s: %+v, %v", m.name, status, err))
			}
			c.t.Fatalf("in vain: %s; members %q", what, members)
		}
	}
}

// A Member is one member of a cluster; after a replacement it is the new member.
type Member struct {
	cluster *Cluster
	client  string // the address for clients
	peer    string // the address for the proxies
	name    string
	host    string // its address for other members: one for documentation (RFC 5737), which only the proxies can reach
	dir     string
	process *exec.Cmd
	ended   <-chan struct{}
}

// Endpoint is the address for clients.
func (m *Member) Endpoint() string { return m.client }

// Isolate cuts the member off from the others, but not from its clients: connections stay open, but
// carry no data. heal undoes it.
func (m *Member) Isolate() (heal func()) {
	m.cluster.net.isolate(m.host)
	return func() { m.cluster.net.heal(m.host) }
}

// Stop kills the member. heal starts it again with its data.
func (m *Member) Stop() (heal func()) {
	m.kill()
	return func() { m.start("existing") }
}

// Pause stops the member's process with SIGSTOP, and returns when it has stopped: its connections
// stay open, but nothing is answered. heal continues the process.
func (m *Member) Pause() (heal func()) {
	m.cluster.t.Helper()
	m.signal(syscall.SIGSTOP)
	if err := awaitStop(m.process.Process.Pid); err != nil {
		m.cluster.t.Errorf("stop %s: %v", m.name, err)
	}
	return func() { m.signal(syscall.SIGCONT) }
}

// Slow lets the member run only for a tenth of each half second, as if its disk were slow. heal
// undoes it.
func (m *Member) Slow() (heal func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for turn := 0; ; turn++ {
			s := syscall.SIGSTOP
			length := 450 * time.Millisecond
			if turn%2 == 1 {
				s = syscall.SIGCONT
				length = 50 * time.Millisecond
			}
			_ = m.process.Process.Signal(s)
			timer := time.NewTimer(length)
			select {
			case <-timer.C:
			case <-end:
				timer.Stop()
				_ = m.process.Process.Signal(syscall.SIGCONT)
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// Remove removes the member from the cluster and ends it. heal adds a new one in its place, at the
// same client address.
func (m *Member) Remove() (heal func()) {
	m.cluster.t.Helper()
	status, err := m.status()
	if err != nil {
		m.cluster.t.Fatal(err)
	}
	m.cluster.change("remove a member", m, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.MemberRemove(ctx, status.Header.MemberId)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil
		}
		return err
	})
	m.kill()
	return func() {
		m.fresh()
		m.cluster.change("add a member", m, func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.MemberAdd(ctx, []string{m.url()})
			if errors.Is(err, rpctypes.ErrPeerURLExist) {
				return nil
			}
			return err
		})
		m.start("existing")
	}
}

// change changes the membership through the other members, and retries until it succeeds.
func (c *Cluster) change(what string, without *Member, change func(context.Context, *clientv3.Client) error) {
	c.t.Helper()
	var others []string
	for _, m := range c.members {
		if m != without {
			others = append(others, m.client)
		}
	}
	client := Client(c.t, others)
	defer func() { _ = client.Close() }()
	var err error
	defer func() {
		if err != nil {
			c.t.Errorf("%s: %v", what, err)
		}
	}()
	c.until(what, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = change(ctx, client)
		return err == nil
	})
}

// url returns the member's URL for other members.
func (m *Member) url() string { return "http://" + m.host + ":2380" }

// fresh gives the member a new name and no data.
func (m *Member) fresh() {
	m.cluster.made++
	m.name, m.host = fmt.Sprintf("member-%d", m.cluster.made), fmt.Sprintf("192.0.2.%d", m.cluster.made)
	m.dir = m.cluster.t.TempDir()
	m.cluster.net.add(m.host, m.peer)
}

// start starts the member's process without waiting until it answers.
func (m *Member) start(state string) {
	m.cluster.t.Helper()
	text, err := json.Marshal(map[string]any{
		"name": m.name, "data-dir": filepath.Join(m.dir, "data"),
		"listen-client-urls": "http://" + m.client, "advertise-client-urls": "http://" + m.client,
		"listen-peer-urls": "http://" + m.peer, "initial-advertise-peer-urls": m.url(),
		"initial-cluster": m.cluster.peers(), "initial-cluster-token": m.cluster.token, "initial-cluster-state": state,
		"unsafe-no-fsync": true, "strict-reconfig-check": false, "logger": "zap", "log-level": "error", "log-outputs": []string{"stderr"},
	})
	file := filepath.Join(m.dir, "member.yaml") // which JSON is
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		m.cluster.t.Fatal(err)
	}
	if m.process, m.ended, err = startProcess(file, "HTTP_PROXY="+m.cluster.net.proxy(m.host), "NO_PROXY="); err != nil {
		m.cluster.t.Fatal(err)
	}
}

func (m *Member) kill() {
	_ = m.process.Process.Kill()
	<-m.ended
}

func (m *Member) signal(s os.Signal) {
	m.cluster.t.Helper()
	if err := m.process.Process.Signal(s); err != nil {
		m.cluster.t.Errorf("signal %v: %v", s, err)
	}
}

// Ready returns when the member knows a leader.
func (m *Member) Ready() {
	m.cluster.t.Helper()
	m.cluster.until(m.name+" knows a leader", func() bool {
		status, err := m.status()
		return err == nil && status.Leader != 0
	})
}

// status requests the member's status. The member may not answer.
func (m *Member) status() (*clientv3.StatusResponse, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.client}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return client.Status(ctx, m.client)
}
