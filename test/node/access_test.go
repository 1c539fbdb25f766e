package node

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/notice"
)

// enlist writes a file of identities of lines: a token, a blank, and what its bearer is called and
// may do.
func enlist(t *testing.T, path string, lines ...string) {
	t.Helper()
	var text strings.Builder
	for _, line := range lines {
		token, rest, _ := strings.Cut(line, " ")
		fmt.Fprintf(&text, "token %s %s\n", access.Hash(token), rest)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A program is what a client of a node has been given.
type program struct {
	changes chan string
	notices chan client.Notice
	ended   chan error
	stop    func() // stops the client as planned
}

// connect runs a client until the test ends.
func (n *live) connect(cfg client.Config, subscriptions ...client.Subscription) *program {
	n.Helper()
	_, port, _ := strings.Cut(n.service.Gateway(), ":")
	return n.connectTo("localhost:"+port, cfg, subscriptions...)
}

func (n *live) connectTo(address string, cfg client.Config, subscriptions ...client.Subscription) *program {
	n.Helper()
	p := &program{changes: make(chan string, 1000), notices: make(chan client.Notice, 1000), ended: make(chan error, 1)}
	cfg.Addresses, cfg.Start = []string{address}, cmp.Or(cfg.Start, client.StartNow)
	cfg.OnNotice = func(_ context.Context, told client.Notice) error {
		p.notices <- told
		return nil
	}
	c, err := client.New(cfg)
	if err != nil {
		n.Fatal(err)
	}
	for _, sub := range subscriptions {
		err := c.Subscribe(sub, func(_ context.Context, change client.Change) error {
			p.changes <- fmt.Sprint(bson.Raw(change.Data).Lookup("documentKey", "_id"))
			return nil
		})
		if err != nil {
			n.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ended <- c.Run(ctx)
	}()
	p.stop = func() {
		cancel()
		<-done
	}
	n.Cleanup(p.stop)
	return p
}

// takes waits for so many changes.
func (p *program) takes(t *testing.T, n int) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for i := range n {
		select {
		case <-p.changes:
		case <-timeout.C:
			t.Fatalf("%d of %d changes", i, n)
		}
	}
}

// told waits for a notice that holds.
func (p *program) told(t *testing.T, what string, holds func(client.Notice) bool) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case n := <-p.notices:
			if holds(n) {
				return
			}
		case <-timeout.C:
			t.Fatalf("in vain: %s", what)
		}
	}
}

func connected(n client.Notice) bool {
	_, ok := n.(client.Connected)
	return ok
}

// Nobody but programs with a certificate of the authority and a good token is served, of what it
// may have; a token that is revoked ends its session, and a certificate that is replaced is the
// next one's.
func TestGatewaysOverMutualTLSWithTokens(t *testing.T) {
	t.Parallel()
	ca, strangers := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	cert, key := ca.Files(t)
	list := filepath.Join(t.TempDir(), "identities")
	enlist(t, list, "good name=shipping namespace=shop.orders", "other name=other namespace=*")
	n := newRig(t, devmongo.Config{},
		"STREAMER_GRPC_TLS_CERT_FILE="+cert, "STREAMER_GRPC_TLS_KEY_FILE="+key, "STREAMER_GRPC_TLS_CLIENT_CA_FILE="+ca.CAFile(t),
		"STREAMER_ACCESS_IDENTITIES_FILE="+list, "STREAMER_ACCESS_RECHECK=1s").begin()
	n.status()
	token := func(text string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return text, nil }
	}
	orders := client.Subscription{ID: "orders", DB: "shop", Coll: "orders"}
	for name, cfg := range map[string]client.Config{
		"wrong token":           {TLS: ca.Client(t, "gw"), Token: token("bad")},
		"no token":              {TLS: ca.Client(t, "gw")},
		"no certificate":        {TLS: ca.Client(t, ""), Token: token("good")},
		"strangers certificate": {TLS: withCertificateOf(t, ca, strangers), Token: token("good")},
		"strangers server":      {TLS: strangers.Client(t, "gw"), Token: token("good")},
		"plaintext":             {Token: token("good")},
	} {
		cfg.Subscriber, cfg.ReconnectWait = name, time.Minute
		p := n.connect(cfg, orders)
		timeout := time.NewTimer(patience)
		defer timeout.Stop()
		select {
		case err := <-p.ended:
			if !strings.Contains(fmt.Sprint(err), string(fault.AccessUnauthenticated)) {
				t.Errorf("%s: ended with %v", name, err)
			}
		case told := <-p.notices:
			if _, ok := told.(client.Disconnected); !ok {
				t.Errorf("%s: %#v", name, told)
			}
		case <-timeout.C:
			t.Errorf("%s: neither served nor refused", name)
		}
	}

	n.until("handshakes that failed are in the audit log", func() bool {
		return slices.ContainsFunc(n.recorded("other"), func(r notice.Notice) bool {
			return r.Kind == notice.KindLoginRefused && r.Fields["transport"] == "grpc" && r.Fields["reason"] == "handshake"
		})
	})

	p := n.connect(client.Config{
		Subscriber: "shipping", TLS: ca.Client(t, "gw"), Token: token("good"),
		OnRejected: func(context.Context, client.Rejected) client.Decision { return client.Skip },
	}, orders, client.Subscription{ID: "crm", DB: "crm", Coll: "x"})
	p.told(t, "the subscription to what is not allowed is rejected", func(n client.Notice) bool {
		r, ok := n.(client.Rejected)
		return ok && r.Subscription == "crm" && r.Code == string(fault.AccessForbidden) && r.Remedy != ""
	})
	other := n.connect(client.Config{Subscriber: "other", TLS: ca.Client(t, "gw"), Token: token("other")}, orders)
	other.told(t, "the other is connected", connected)
	n.insert("one")
	for _, p := range []*program{p, other} {
		if id := <-p.changes; id != `"one"` {
			t.Errorf("%s", id)
		}
	}

	before := serial(t, n.service.Gateway(), ca.Client(t, "gw"))
	c, k := ca.Issue(t, "server", time.Hour)
	for path, content := range map[string][]byte{cert: c, key: k} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if serial(t, n.service.Gateway(), ca.Client(t, "gw")) == before {
		t.Error("the old certificate is shown after it was replaced")
	}
	enlist(t, list, "other name=other namespace=*")
	p.told(t, "the session is ended with its code", func(n client.Notice) bool {
		d, ok := n.(client.Disconnected)
		return ok && strings.Contains(fmt.Sprint(d.Err), string(fault.AccessUnauthenticated))
	})
	enlist(t, list, "good name=shipping namespace=shop.orders", "other name=other namespace=*")
	p.told(t, "it is back", connected)
	n.insert("two")
	for _, p := range []*program{p, other} {
		if id := <-p.changes; id != `"two"` {
			t.Errorf("%s", id)
		}
	}
	if err := os.WriteFile(cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.until("the certificate is a problem", func() bool { return n.has("certificates", fault.AccessBadCertificate) })
}

// withCertificateOf is what a client dials with that trusts one authority and shows a certificate
// of another.
func withCertificateOf(t *testing.T, trusted, shown *accesstest.Authority) *tls.Config {
	t.Helper()
	c := trusted.Client(t, "")
	c.Certificates = shown.Client(t, "gw").Certificates
	return c
}

// serial returns the number of the certificate that a server shows.
func serial(t *testing.T, address string, cfg *tls.Config) string {
	t.Helper()
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	secured, _ := conn.(*tls.Conn)
	return secured.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// Event streams want a token too, and pages of other origins must be listed; probes and metrics ask
// nobody.
func TestEventStreamsWithTokensAndOrigins(t *testing.T) {
	t.Parallel()
	const page = "https://app.example.com"
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Files(t)
	list := filepath.Join(t.TempDir(), "identities")
	enlist(t, list, "good name=shipping namespace=shop.orders max_subscriptions=1")
	n := newRig(t, devmongo.Config{}, "STREAMER_HTTP_TLS_CERT_FILE="+cert, "STREAMER_HTTP_TLS_KEY_FILE="+key,
		"STREAMER_HTTP_CORS_ORIGINS="+page, "STREAMER_ACCESS_IDENTITIES_FILE="+list, "STREAMER_ACCESS_RECHECK=1s").begin()
	n.status()
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(t, ""), ForceAttemptHTTP2: true}}
	defer browser.CloseIdleConnections()
	ask := func(method, path string, header ...string) *http.Response {
		t.Helper()
		_, port, _ := strings.Cut(n.service.Addr(), ":")
		req, err := http.NewRequestWithContext(t.Context(), method, "https://localhost:"+port+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	for _, tt := range []struct {
		method, path string
		header       []string
		status       int
		allowed      string
	}{
		{"GET", "/livez", nil, 200, ""},
		{"GET", "/metrics", nil, 200, ""},
		{"GET", "/v1/events?db=shop&coll=orders", nil, 401, ""},
		{"GET", "/", nil, 200, ""},
		{"GET", "/assets/app.js", nil, 200, ""},
		{"GET", "/v1/gaps", nil, 401, ""},
		{"GET", "/v1/status", nil, 401, ""},
		{"GET", "/v1/status", []string{"Authorization", "Bearer good"}, 403, ""},
		{"GET", "/v1/notices", nil, 401, ""},
		{"GET", "/v1/events?db=shop&coll=orders", []string{"Authorization", "Bearer bad", "Origin", page}, 401, page},
		{"GET", "/v1/events", []string{"Authorization", "Bearer good"}, 403, ""},
		{"GET", "/v1/events?db=crm&coll=x", []string{"Authorization", "Bearer good"}, 403, ""},
		{"GET", "/v1/gaps", []string{"Authorization", "Bearer good", "Origin", "https://evil.example"}, 200, ""},
		{"OPTIONS", "/v1/events", []string{"Origin", page, "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization"}, 204, page},
		{"OPTIONS", "/v1/events", []string{"Origin", "https://evil.example", "Access-Control-Request-Method", "GET"}, 403, ""},
	} {
		resp := ask(tt.method, tt.path, tt.header...)
		if resp.StatusCode != tt.status || resp.Header.Get("Access-Control-Allow-Origin") != tt.allowed {
			t.Errorf("%s %s %v: %s, allowed %q", tt.method, tt.path, tt.header, resp.Status, resp.Header.Get("Access-Control-Allow-Origin"))
		}
		if resp.StatusCode != http.StatusOK {
			_ = resp.Body.Close()
		}
	}

	good := []string{"Authorization", "Bearer good", "Origin", page}
	var stream *http.Response
	n.until("the node opens an event stream", func() bool { // while MongoDB is slow, clients ask again
		stream = ask("GET", "/v1/events?db=shop&coll=orders", good...)
		return stream.StatusCode != http.StatusServiceUnavailable
	})
	lines := bufio.NewReader(stream.Body)
	until := func(text string) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%v before %q", err, text)
			}
			if strings.Contains(line, text) {
				return
			}
		}
	}
	until("connected")
	if stream.Proto != "HTTP/2.0" || stream.Header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("%s, %v", stream.Proto, stream.Header)
	}
	if resp := ask("GET", "/v1/events?db=shop&coll=orders", good...); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a second stream of an identity that may have one: %s", resp.Status)
	}
	n.insert("one")
	until(`"one"`)
	enlist(t, list, "another name=another namespace=*")
	until("event: error")
	until(string(fault.AccessUnauthenticated))
}

// Deletes are chosen by the document that was deleted where the node asks for it.
func TestDeletesAreChosenByTheImageBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{Release: "7.0"}, "STREAMER_MONGODB_FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable", "STREAMER_MONGODB_FULL_DOCUMENT=updateLookup")
	create := bson.D{{Key: "create", Value: "orders"}, {Key: "changeStreamPreAndPostImages", Value: bson.D{{Key: "enabled", Value: true}}}}
	if err := r.client.Database("shop").RunCommand(t.Context(), create).Err(); err != nil {
		t.Fatal(err)
	}
	for id, status := range map[string]string{"a": "open", "b": "closed", "c": "open"} {
		if _, err := r.coll("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "status", Value: status}}); err != nil {
			t.Fatal(err)
		}
	}
	n := r.begin()
	n.status()
	p := n.connect(client.Config{Subscriber: "g"}, client.Subscription{
		ID: "open", DB: "shop", Coll: "orders", Ops: []string{"delete"}, Filter: `doc.status == "open"`, Deletes: client.DeletesBefore,
	})
	p.told(t, "it is connected", connected)
	for _, id := range []string{"b", "a", "c"} {
		if _, err := r.coll("orders").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: id}}); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]bool{<-p.changes: true, <-p.changes: true}
	if !got[`"a"`] || !got[`"c"`] {
		t.Errorf("%v", got)
	}
	without := n.connect(client.Config{Subscriber: "h"}, client.Subscription{ID: "all", DB: "shop", Coll: "orders"})
	without.told(t, "it is connected", connected)
}
