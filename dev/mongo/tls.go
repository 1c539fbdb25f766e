package devmongo

import (
	"crypto/tls"
	"net"
	"sync/atomic"
)

// certified is what connections are encrypted with; nil is plaintext.
type certified struct{ now atomic.Pointer[tls.Config] }

// listen makes a listener of encrypted connections, whose configuration may change.
func (c *certified) listen(l net.Listener, first *tls.Config) net.Listener {
	if first == nil {
		return l
	}
	c.now.Store(first)
	return tls.NewListener(l, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now.Load(), nil }})
}

// SetTLS changes certificates and authorities for connections that come from now on. The server has
// had some from the start.
func (s *Server) SetTLS(c *tls.Config) { s.certified.now.Store(c) }
