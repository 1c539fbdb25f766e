package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
)

// unwatched are namespaces of which a node with the given watch reads nothing.
func unwatched(everything bool) [][2]string {
	never := [][2]string{
		{"admin", "system.users"}, {"admin", "x"}, {"config", "transactions"}, {"local", "oplog.rs"}, {"streamer", "checkpoints"}, {"streamer", "gaps"},
		{"shop", "system.views"}, {"shop", "system.buckets.orders"},
	}
	if everything {
		return never
	}
	return append(never, [][2]string{{"crm", "leads"}, {"shop", "other"}, {"shop", "orders.x"}}...)
}

// refused returns the status of an answer over HTTP, and the code of ours if it is a refusal.
func (n *live) refused(path string, header ...string) (status int, code fault.Code) {
	n.Helper()
	resp := n.request(http.DefaultClient, "http://"+n.service.Addr()+path, header...)
	defer func() { _ = resp.Body.Close() }()
	var said struct {
		Code fault.Code `json:"code"`
	}
	if resp.StatusCode != http.StatusOK { // otherwise it may never end
		_ = json.NewDecoder(resp.Body).Decode(&said) // the code is missing then
	}
	return resp.StatusCode, said.Code
}

// Whatever a node is asked for changes or documents with, it gives nothing of what it does not
// watch.
func TestNothingIsReadThatIsNotWatched(t *testing.T) {
	t.Parallel()
	for name, watch := range map[string]string{"everything": "", "one collection": "shop.orders"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{})
			for _, ns := range unwatched(false) {
				if strings.HasPrefix(ns[1], "system.") || ns[0] == "local" {
					continue
				}
				if _, err := r.client.Database(ns[0]).Collection(ns[1]).InsertOne(t.Context(), bson.D{{Key: "_id", Value: "secret"}}); err != nil {
					t.Fatal(err)
				}
			}
			n := r.beginWith(nil, "STREAMER_MONGODB_WATCH="+watch)
			for _, ns := range unwatched(watch == "") {
				query := url.Values{"db": {ns[0]}, "coll": {ns[1]}}.Encode()
				for _, path := range []string{"/v1/snapshot?", "/v1/events?", "/v1/events?subscriber=s&start=snapshot&", "/v1/events?start=earliest&"} {
					if status, code := n.refused(path + query); status != http.StatusBadRequest || code != fault.SessionUnwatched {
						t.Errorf("%s%s: %d, %s", path, query, status, code)
					}
				}
				for _, start := range []streampb.Start{streampb.Start_START_NOW, streampb.Start_START_SNAPSHOT} {
					stream, err := n.hello(n.conn(), "", func(h *streampb.Hello) {
						h.Subscriber, h.ProcessId, h.Start = "g", "p", start
						h.Subscriptions = []*streampb.Subscription{{Id: "all", Db: ns[0], Coll: ns[1]}}
					})
					if err != nil {
						t.Fatal(err)
					}
					if answer, err := stream.Recv(); err != nil || answer.GetRejected().GetCode() != string(fault.SessionUnwatched) {
						t.Errorf("%v over gRPC, %v: %v, %v", ns, start, answer, err)
					}
				}
			}
			if resp, text := n.answer(http.DefaultClient, "http://"+n.service.Addr()+"/v1/snapshot?db=shop&coll=orders"); resp.StatusCode != http.StatusOK {
				t.Errorf("what is watched: %s, %s", resp.Status, text)
			}
		})
	}
}

// endpoints returns what a node serves over HTTP, with parts of paths filled in, by the source that
// puts it together.
func endpoints(t *testing.T) (paths []string) {
	t.Helper()
	for _, file := range []string{"../../internal/wiring/http.go", "../../health/handler.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`"((?:GET |POST )?/[a-z0-9{}/_-]+)"`).FindAllStringSubmatch(string(source), -1) {
			path := strings.NewReplacer("{name}", "kafka", "{do}", "pause", "{node}", "n", "{partition}", "1").Replace(found[1])
			if !strings.HasSuffix(path, "/") && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// Every endpoint refuses parameters that it does not know: a misspelt one would be no filter, or no
// limit. Probes and metrics answer whatever is asked: a probe that is refused restarts a node.
func TestEveryEndpointRefusesUnknownParameters(t *testing.T) {
	t.Parallel()
	for _, probes := range []string{"", "127.0.0.1:0"} {
		n := newRig(t, devmongo.Config{}).beginWith(nil, "STREAMER_HTTP_PROBES_LISTEN="+probes)
		all := endpoints(t)
		if len(all) < 18 {
			t.Errorf("only %v", all)
		}
		for _, endpoint := range all {
			method, path, given := strings.Cut(endpoint, " ")
			if !given {
				method, path = http.MethodGet, endpoint
			}
			address, probe := n.service.Addr(), !strings.HasPrefix(path, "/v1/")
			if probe {
				address = n.service.Probes()
			}
			status := func(query string) (int, string) {
				resp, text := n.send(method, "http://"+address+path+query)
				return resp.StatusCode, text
			}
			for _, query := range []string{"fliter=x", "limit=1&Limit=1", "%zz", "a;b", "verbose", "x", "=%ff"} {
				if !probe {
					if got, text := status("?" + query); got != http.StatusBadRequest || !strings.Contains(text, string(fault.SessionBadRequest)) {
						t.Errorf("%s %s?%s: %d, %s", method, path, query, got, text)
					}
					continue
				}
				before, _ := status("")
				got, text := status("?" + query)
				after, _ := status("") // the node may have become healthy meanwhile
				if got != before && got != after {
					t.Errorf("%s %s?%s: %d, %s; %d and %d without", method, path, query, got, text, before, after)
				}
			}
		}
	}
}

// send sends a request over HTTP whose answer ends.
func (n *live) send(method, url string, header ...string) (*http.Response, string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		n.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		n.Fatal(err)
	}
	return resp, string(text)
}

// A name that cannot be shown, or that is a sink's, is refused by every transport before it reaches
// the store, a metric or a log line.
func TestNamesAreRefusedWhereTheyComeIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	n := r.begin() // with a shared subscriber called stdout
	n.status()
	stream := r.events(n, "")
	r.insert("a")
	id, err := stream.Next()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"\xff", "a\nb", "a\x00", "\x1b[31m", "\u202egnp", "stdout", "sink/kafka", "sink/", strings.Repeat("x", 257)}
	for _, name := range names {
		for _, last := range []string{"", id.ID} {
			if status, code := n.refused("/v1/events?subscriber="+url.QueryEscape(name), "Last-Event-ID", last); status != http.StatusBadRequest || code != fault.SessionBadRequest {
				t.Errorf("%q over HTTP: %d, %s", name, status, code)
			}
		}
		if !utf8.ValidString(name) {
			continue // gateway.TestEveryServiceIsBounded sends such a one
		}
		if _, err := n.hello(n.conn(), "", func(h *streampb.Hello) { h.Subscriber, h.ProcessId = name, "p" }); reason(err) != string(fault.SessionBadRequest) {
			t.Errorf("%q over gRPC: %v", name, err)
		}
	}
	if resp, text := n.send(http.MethodGet, "http://"+n.service.Probes()+"/metrics"); resp.StatusCode != http.StatusOK || strings.Count(text, `streamer_subscriber_lag_seconds{`) != 1 {
		t.Errorf("%s, %d series", resp.Status, strings.Count(text, `streamer_subscriber_lag_seconds{`))
	}
	all, err := r.store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Subscriber != sharedName {
			t.Errorf("a checkpoint of %q", c.Subscriber)
		}
	}
}

// A client that closes its side of the connection after its request, and reads the answer, gets it,
// or is told that this was the reason: neither that the node stops nor that a server is away, and
// nothing that looks like an answer and is none.
func TestClientThatClosesItsSideIsToldTheTruth(t *testing.T) {
	t.Parallel()
	n := newRig(t, devmongo.Config{}).beginWith(nil)
	var paths []string
	for _, path := range endpoints(t) {
		if strings.Contains(path, "/v1/") { // the others wait for nobody
			paths = append(paths, path)
		}
	}
	for _, events := range []string{"", "subscriber=half", "start=earliest&end=" + time.Now().UTC().Format(time.RFC3339)} {
		paths = append(paths, "/v1/events?"+events)
	}
	paths = append(paths, "/v1/snapshot?db=shop&coll=orders", "/v1/changes?db=shop&coll=orders&id=1")
	for _, path := range paths {
		method, path, found := strings.Cut(path, " ")
		if !found {
			method, path = http.MethodGet, method
		}
		for _, proto := range []string{"1.1", "1.0"} {
			conn, err := net.Dial("tcp", n.service.Addr())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, method+" "+path+" HTTP/"+proto+"\r\nHost: "+n.service.Addr()+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%s %s: %v", method, path, err)
				continue
			}
			text, err := io.ReadAll(resp.Body)
			_ = conn.Close()
			var answer struct {
				Code   fault.Code
				Origin struct{ Cluster string }
			}
			plain := json.Unmarshal(text, &answer) == nil
			switch {
			case err != nil, resp.StatusCode >= http.StatusInternalServerError, bytes.Contains(text, []byte(fault.NodeStopping)), len(text) == 0,
				resp.StatusCode == http.StatusOK && path == "/v1/subscribers" && answer.Origin.Cluster == "",
				resp.StatusCode == http.StatusBadRequest && plain && answer.Code == "":
				t.Errorf("HTTP/%s, %s %s: %s, %.300s, %v", proto, method, path, resp.Status, text, err)
			}
		}
	}
}
