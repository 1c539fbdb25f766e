package operator

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
)

// tokenVariable holds the token where neither --token-file nor the context names a file.
// Configuration leaves variables that begin so to commands.
const tokenVariable = "STREAMER_CLIENT_TOKEN"

// A nodeClient asks nodes. Its zero value shows nothing and trusts the authorities of the machine.
// It is used by one goroutine.
type nodeClient struct {
	address, context string
	// file is the configuration of the command's -f.
	file                                             string
	tokenFile, caFile, certFile, keyFile, serverName string

	flag   *pflag.Flag   // --address
	wait   time.Duration // for an answer; requestTimeout unless set
	site   site          // empty before it is located
	client *http.Client  // nil before the first request
}

// addFlags adds the flags for the node, the client's credentials, and the trusted authorities.
func (c *nodeClient) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.address, "address", "", "HTTP address of a node; without it, --context, http.listen of -f, "+addressVariable+", a context, or "+defaultAddress)
	c.flag = flags.Lookup("address")
	flags.StringVar(&c.context, "context", "", "context that says how the node is reached (streamer context)")
	complete(cmd, "context", completeContexts)
	flags.StringVar(&c.tokenFile, "token-file", "", "file of the bearer token to show; without it, that of the context, or the variable "+tokenVariable)
	flags.StringVar(&c.caFile, "ca-file", "", "PEM file of the authorities that the node's certificate must come from; without it, those of the machine")
	flags.StringVar(&c.certFile, "cert-file", "", "PEM file of a client certificate to show, the leaf first")
	flags.StringVar(&c.keyFile, "key-file", "", "PEM file of the client certificate's key")
	flags.StringVar(&c.serverName, "server-name", "", "name that the node's certificate must have, where the address has another one")
	cmd.MarkFlagsRequiredTogether("cert-file", "key-file")
	cmd.MarkFlagsMutuallyExclusive("address", "context")
}

// addFileFlag adds -f to a command that only asks a node.
func (c *nodeClient) addFileFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.file, "file", "f", "", "configuration of the node: its http.listen is the address")
}

// do sends a request with the client's credentials. An answer of any status is not an error. Errors
// in the flags or their files are the fault CommandBadArgument.
func (c *nodeClient) do(req *http.Request) (*http.Response, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		if !private(req.URL) {
			return nil, fault.Newf(fault.CommandBadArgument, "the token would go to %s in plaintext, where others can read it: use https", req.URL.Host)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return c.client.Do(req)
}

// open makes the client.
func (c *nodeClient) open() error {
	if c.client != nil {
		return nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.serverName}
	if c.caFile != "" {
		pem, err := os.ReadFile(c.caFile)
		if err != nil {
			return fault.Newf(fault.CommandBadArgument, "--ca-file: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return fault.Newf(fault.CommandBadArgument, "--ca-file %s holds no certificate", c.caFile)
		}
	}
	if c.certFile != "" {
		if _, err := c.certificate(); err != nil {
			return err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.certificate() }
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = cfg
	transport.DisableKeepAlives = true // a command asks seldom, and leaves no connection behind
	c.client = &http.Client{
		Transport: transport,
		// A node never redirects, and a server that does must not get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

// certificate reads the client certificate.
func (c *nodeClient) certificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, fault.Newf(fault.CommandBadArgument, "--cert-file, --key-file: %w", err)
	}
	return &pair, nil
}

// token returns the token, "" where there is none to show.
func (c *nodeClient) token() (string, error) {
	text := os.Getenv(tokenVariable)
	where := tokenVariable
	if c.tokenFile != "" {
		content, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return "", fault.Newf(fault.CommandBadArgument, "--token-file: %w", err)
		}
		text = string(content)
		where = "--token-file " + c.tokenFile
	}
	token := strings.TrimSpace(text)
	if token == "" && c.tokenFile != "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fault.New(fault.CommandBadArgument, errors.New(where+": it must hold one token, and nothing else"))
	}
	return token, nil
}

// private reports whether requests to the address are safe from other readers.
func private(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// requestTimeout is how long a node may take to answer most requests, operationTimeout to do
// something: a command must hear what was done, or that nothing was.
const (
	requestTimeout   = 10 * time.Second
	operationTimeout = admin.AnswerTimeout + 5*time.Second
)

// maxAnswer bounds an answer: 16384 partitions take some 3 MiB.
const maxAnswer = 32 << 20

// get reads JSON from the node, whatever the status of its answer, which it returns. A node that
// does not answer, or not in JSON, is the fault NodeUnreachable.
func (c *nodeClient) get(ctx context.Context, path string, into any) (status int, err error) {
	return c.send(ctx, http.MethodGet, path, nil, into)
}

// send does it with any method and a query. If a node that was asked to do something does not
// answer, the error says that what it did is not known.
func (c *nodeClient) send(ctx context.Context, method, path string, query url.Values, into any) (status int, err error) {
	wait := cmp.Or(c.wait, requestTimeout)
	if method != http.MethodGet {
		wait = max(wait, operationTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent.Store(true) }})
	req, err := c.request(ctx, method, path, query)
	if err != nil {
		return 0, err
	}
	body, resp, err := c.read(req)
	switch {
	case err != nil && sent.Load() && method != http.MethodGet:
		return 0, fault.Newf(fault.NodeUnreachable, "the node at %s was asked, and has not answered: what it did is not known: %w", c.site.base, err)
	case err != nil:
		return 0, c.unreachable(err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return 0, c.unreachable(foreign(resp))
	}
	return resp.StatusCode, nil
}

// read does a request and reads the answer.
func (c *nodeClient) read(req *http.Request) ([]byte, *http.Response, error) {
	resp, err := c.do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return body, resp, err
}

// ask is send that makes an error of every answer but a good one: the fault that the node names, or
// NodeUnreachable.
func (c *nodeClient) ask(ctx context.Context, method, path string, query url.Values, into any) error {
	var body json.RawMessage
	status, err := c.send(ctx, method, path, query, &body)
	if err != nil {
		return err
	}
	if status >= http.StatusMultipleChoices {
		if err := refusal(body); fault.Of(err) != "" || err != nil && method != http.MethodGet {
			return err
		}
		return c.unreachable(fmt.Errorf("it answers %d %s", status, http.StatusText(status)))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return c.unreachable(fmt.Errorf("read its answer: %w", err))
	}
	return nil
}

// request makes a request for the node.
func (c *nodeClient) request(ctx context.Context, method, path string, query url.Values) (*http.Request, error) {
	at, err := c.locate()
	if err != nil {
		return nil, err
	}
	base := at.base
	if path == healthPath && at.probes != nil {
		base = at.probes
	}
	to := base.JoinPath(path)
	to.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return nil, fault.New(fault.CommandBadArgument, err)
	}
	return req, nil
}

// foreign says that a server answers that is no node.
func foreign(resp *http.Response) error {
	return fmt.Errorf("%s answers %s, which is not the answer of a Streamer node", resp.Request.URL, resp.Status)
}

// healthPath is the path that http.probes_listen serves instead of http.listen.
const healthPath = "health"

// unreachable adds to an error the node that did not answer, the source of its address, and a
// possible mistake in it. A fault stays unchanged.
func (c *nodeClient) unreachable(err error) error {
	if fault.Of(err) != "" {
		return err
	}
	hint := ""
	switch text := err.Error(); {
	case strings.Contains(text, `malformed HTTP response "\x00\x00`):
		err = errors.New("that is a gRPC port: the address is that of http.listen") // instead of the bytes
	case strings.Contains(text, "readLoopPeekFailLocked: %!w(<nil>)"): // net/http knows no cause
		err = errors.New("the server speaks before it is asked; perhaps that is a gRPC port: the address is that of http.listen")
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		hint = "; the node has no TLS there: use http://"
	case strings.Contains(text, "malformed HTTP response \"\\x15\\x03"), strings.Contains(text, "answers 400"):
		hint = "; if the node has TLS (http.tls), the address begins with https://"
	}
	return fault.Newf(fault.NodeUnreachable, "no node at %s (%s): %w%s", c.site.base, c.site.from, err, hint)
}
