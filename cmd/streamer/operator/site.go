package operator

import (
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
)

// Variables of commands that ask a node. Nodes ignore them in their own environment.
const (
	addressVariable = "STREAMER_ADDRESS"
	contextVariable = "STREAMER_CONTEXT"
)

// defaultAddress is that of a node with the default configuration.
const defaultAddress = "127.0.0.1:8080"

// A site is where a node answers, and what said so.
type site struct {
	base *url.URL
	// probes is where /health is, where that is not base.
	probes *url.URL
	// from names the source of the address, for errors.
	from string
}

// locate returns the node to ask. The first of these that exists decides: --address, --context, the
// configuration of -f, the variable STREAMER_ADDRESS, the context of STREAMER_CONTEXT, the current
// context, the configuration in the environment, the default. The token and the certificates of a
// context go to its own address only.
func (c *nodeClient) locate() (at site, err error) {
	if c.site.base != nil {
		return c.site, nil
	}
	address, name := os.Getenv(addressVariable), os.Getenv(contextVariable)
	switch {
	case c.addressGiven():
		at, err = siteAt(c.address, "--address")
	case c.context != "":
		at, err = c.siteOfContext(c.context, "--context "+c.context)
	case c.file != "":
		at, err = siteOf(c.file, "http.listen of "+c.file)
	case address != "":
		at, err = siteAt(address, addressVariable)
	case name != "":
		at, err = c.siteOfContext(name, contextVariable)
	default:
		at, err = c.siteUnnamed()
	}
	if err == nil {
		c.site = at
	}
	return at, err
}

// siteOfContext is the node of a context that from has named. The client takes its settings.
func (c *nodeClient) siteOfContext(name, from string) (site, error) {
	contexts, err := readContexts()
	if err != nil {
		return site{}, err
	}
	named, err := contexts.named(name, from)
	if err != nil {
		return site{}, err
	}
	at, err := siteAt(named.Address, "context "+name)
	if err == nil {
		c.fill(*named)
	}
	return at, err
}

// siteUnnamed is the node where neither a flag nor a variable names one.
func (c *nodeClient) siteUnnamed() (site, error) {
	contexts, err := readContexts()
	switch {
	case err != nil:
		return site{}, err
	case contexts.Contexts[contexts.Current] != nil:
		return c.siteOfContext(contexts.Current, "the current context")
	case configured(os.Environ()):
		return siteOf("", "http.listen of the environment")
	}
	return siteAt(defaultAddress, "the default")
}

// names reports whether the command line or the environment names a node. The store of checkpoints
// is not asked then, where the node can tell.
func (c *nodeClient) names() bool {
	if c.addressGiven() || c.context != "" {
		return true
	}
	if c.file != "" {
		return false
	}
	if os.Getenv(addressVariable) != "" || os.Getenv(contextVariable) != "" {
		return true
	}
	if configured(os.Environ()) {
		return false
	}
	contexts, err := readContexts()
	return err != nil || contexts.Current != "" // the error is shown where the node is asked
}

func (c *nodeClient) addressGiven() bool { return c.address != "" || c.flag != nil && c.flag.Changed }

// fill takes the settings of a context that no flag has set.
func (c *nodeClient) fill(from nodeContext) {
	for to, value := range map[*string]string{&c.tokenFile: from.TokenFile, &c.caFile: from.CAFile, &c.serverName: from.ServerName} {
		if *to == "" {
			*to = value
		}
	}
	if c.certFile == "" && c.keyFile == "" {
		c.certFile = from.CertFile
		c.keyFile = from.KeyFile
	}
}

// siteAt is the node at an address.
func siteAt(address, from string) (site, error) {
	base, err := parseAddress(from, address)
	return site{base: base, from: from}, err
}

// siteOf is the node that a configuration is for, as this machine reaches it.
func siteOf(file, from string) (site, error) {
	cfg, err := config.Load(file, os.Environ())
	if err != nil {
		return site{}, err
	}
	scheme := "http"
	if cfg.HTTP.TLS.CertFile != "" {
		scheme = "https"
	}
	s := site{from: from}
	if s.base, err = listenerURL(scheme, cfg.HTTP.Listen, from); err == nil && cfg.HTTP.ProbesListen != "" {
		s.probes, err = listenerURL("http", cfg.HTTP.ProbesListen, from)
	}
	return s, err
}

// listenerURL is the address of a listener for clients on its machine.
func listenerURL(scheme, listen, from string) (*url.URL, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return nil, fault.Newf(fault.NodeUnreachable, "%s is %s, which names no port: give --address", from, listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}, nil
}

// parseAddress reads the address of a node, which from has given: a URL, or host:port for http.
func parseAddress(from, address string) (*url.URL, error) {
	text := address
	if !strings.Contains(address, "://") {
		text = "http://" + address
	}
	u, err := url.Parse(text)
	if err == nil && u.User != nil || strings.Contains(address, "@") {
		return nil, fault.Newf(fault.CommandBadArgument, "%s: an address has no user and no password: use --token-file or --cert-file", from)
	}
	isWhole := err == nil && namesNode(u) && (text == address || u.Port() != "")
	if !isWhole {
		return nil, fault.Newf(fault.CommandBadArgument, "%s %q: it must be like http://127.0.0.1:8080, or 127.0.0.1:8080", from, address)
	}
	return u, nil
}

// namesNode reports whether a URL has a host and a protocol that nodes speak.
func namesNode(u *url.URL) bool {
	return u.Hostname() != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// configured reports whether the environment configures nodes.
func configured(environ []string) bool { return slices.ContainsFunc(environ, config.ForNodes) }
