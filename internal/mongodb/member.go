package mongodb

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Members returns the data-bearing members of the replica set except the one that answers, in that
// member's order. It returns none through mongos, which does not let a client choose a member.
func (c *Client) Members(ctx context.Context) ([]string, error) {
	if c.sharded {
		return nil, nil
	}
	h, err := c.hello(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the members of the set: %w", AsFault(err))
	}
	return h.others(), nil
}

// others returns the data-bearing members except the one that answers. Arbiters have no data, and
// servers do not list hidden members.
func (h hello) others() (hosts []string) {
	for _, host := range slices.Concat(h.Hosts, h.Passives) {
		if host != h.Me && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// Member returns a client with direct connections to one member. It connects at its first use, and
// closes with this client.
func (c *Client) Member(host string) (*Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.mu.members[host]; m != nil {
		return m, nil
	}
	m := &Client{cfg: c.cfg, logger: c.logger.With("member", host), host: host}
	m.blind.Store(c.blind.Load())
	m.mu.uri = c.mu.uri
	if _, err := m.Pool(func(*options.ClientOptions) {}); err != nil {
		return nil, err
	}
	if c.mu.members == nil {
		c.mu.members = make(map[string]*Client)
	}
	c.mu.members[host] = m
	return m, nil
}

// direct returns the options for a direct connection to one host. It builds new options, because
// the driver refuses those of a mongodb+srv URI there.
func direct(o *options.ClientOptions, host string) *options.ClientOptions {
	d := options.Client().SetHosts([]string{host}).SetDirect(true)
	d.Auth, d.TLSConfig, d.ReplicaSet = o.Auth, o.TLSConfig, o.ReplicaSet
	d.ConnectTimeout, d.Compressors, d.ServerAPIOptions = o.ConnectTimeout, o.Compressors, o.ServerAPIOptions
	d.HeartbeatInterval, d.MaxConnIdleTime, d.MaxConnecting = o.HeartbeatInterval, o.MaxConnIdleTime, o.MaxConnecting
	d.DisableOCSPEndpointCheck, d.DisableCertificateRevocationCheck = o.DisableOCSPEndpointCheck, o.DisableCertificateRevocationCheck
	d.ZlibLevel, d.ZstdLevel, d.Dialer = o.ZlibLevel, o.ZstdLevel, o.Dialer
	return d
}
