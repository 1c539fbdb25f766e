//go:build !race

package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/notice"
)

// A fort is a node that speaks TLS, and others of its cluster, an honest gateway of one identity,
// whose changes are timed, and what is needed to attack as other identities.
type fort struct {
	*live

	nodes []*live // the first is attacked
	ca    *accesstest.Authority
	seq   int // of the next change
	guest struct {
		sync.Mutex
		delays map[int64]time.Duration // of changes, by their number
		last   map[uint32]int64        // of each partition
		wrong  []string                // what is out of order, or there twice
		more   chan struct{}           // closed when there is one more
	}
}

// An intruder is an identity that attacks a fort, from an address of its own.
type intruder struct {
	*fort

	token string
	ctx   context.Context
	web   *http.Client

	attempts, admitted atomic.Int64
}

// buildFort starts a fort of so many nodes, with so many intruders' tokens.
func buildFort(t *testing.T, nodes, intruders int) *fort {
	t.Helper()
	ca := accesstest.NewAuthority(t)
	cert, key := ca.Files(t)
	lines := []string{"good name=honest namespace=shop.orders"}
	for i := range intruders {
		lines = append(lines, fmt.Sprintf("evil%d name=evil%d namespace=shop.orders namespace=shop.items", i, i))
	}
	list := filepath.Join(t.TempDir(), "identities")
	enlist(t, list, lines...)
	f := &fort{ca: ca}
	f.guest.more, f.guest.delays, f.guest.last = make(chan struct{}), make(map[int64]time.Duration), make(map[uint32]int64)
	r := newRig(t, devmongo.Config{}, "STREAMER_HTTP_TLS_CERT_FILE="+cert, "STREAMER_HTTP_TLS_KEY_FILE="+key,
		"STREAMER_GRPC_TLS_CERT_FILE="+cert, "STREAMER_GRPC_TLS_KEY_FILE="+key, "STREAMER_ACCESS_IDENTITIES_FILE="+list,
		"STREAMER_HTTP_PROBES_LISTEN=127.0.0.1:0", "STREAMER_MONGODB_WATCH=shop.orders,shop.items",
		"STREAMER_MONGODB_FULL_DOCUMENT=updateLookup",         // so that filters may read documents
		"STREAMER_RELIABILITY_SHUTDOWN_CHECKPOINT_TIMEOUT=1m") // a busy machine's etcd is no attack
	var old []any
	for i := range 2000 { // for snapshots, and for those that begin with the earliest change
		old = append(old, bson.D{{Key: "_id", Value: i}, {Key: "text", Value: strings.Repeat("x", 200)}})
	}
	if _, err := r.coll("items").InsertMany(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		settings := []string{"STREAMER_NODE_ID=n"}
		if nodes > 1 {
			settings = append(several(fmt.Sprint("n", i)), fmt.Sprint("STREAMER_CLUSTER_EXPECTED_NODES=", nodes))
		}
		f.nodes = append(f.nodes, r.begin(settings...))
	}
	f.live = f.nodes[0]
	f.until("the nodes share the partitions", func() bool {
		all := 0
		for _, n := range f.nodes {
			owned := n.owned()
			if owned == 0 {
				return false
			}
			all += owned
		}
		return all == partitions
	})
	for _, n := range f.nodes {
		f.until("/health is answered", func() bool { code, _ := look(n, "/health"); return code == http.StatusOK })
	}
	_, port, _ := strings.Cut(f.service.Gateway(), ":")
	f.attend("localhost:" + port)
	return f
}

// look asks a node's listener for probes.
func look(n *live, path string) (code int, text string) {
	n.Helper()
	probes := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, text := n.answer(probes, "http://"+n.service.Probes()+path)
	return resp.StatusCode, text
}

// attend runs the honest gateway until the test ends.
func (f *fort) attend(address string) {
	f.Helper()
	connected := make(chan struct{}, 1000)
	c, err := client.New(client.Config{
		Addresses: []string{address}, Subscriber: "gateway", Start: client.StartNow, TLS: f.ca.Client(f.T, ""),
		Token: func(context.Context) (string, error) { return "good", nil },
		OnNotice: func(_ context.Context, told client.Notice) error {
			switch told.(type) {
			case client.Connected:
				connected <- struct{}{}
			case client.Resync, client.Rewound, client.Rejected:
				f.Errorf("the honest gateway is told %+v", told)
			}
			return nil
		},
	})
	if err == nil {
		err = c.Subscribe(client.Subscription{ID: "orders", DB: "shop", Coll: "orders"}, f.take)
	}
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Error(err)
		}
		if sessions := c.Stats().Sessions; sessions != 1 {
			f.Errorf("the honest gateway needed %d sessions", sessions)
		}
	})
	<-connected
}

// take times a change.
func (f *fort) take(_ context.Context, c client.Change) error {
	now, document := time.Now(), bson.Raw(c.Data).Lookup("fullDocument").Document()
	f.guest.Lock()
	defer f.guest.Unlock()
	seq, p := document.Lookup("seq").AsInt64(), c.Partition
	if last, some := f.guest.last[p]; some && seq <= last {
		f.guest.wrong = append(f.guest.wrong, fmt.Sprintf("change %d after %d of partition %d", seq, last, p))
	}
	f.guest.last[p] = seq
	f.guest.delays[seq] = now.Sub(time.Unix(0, document.Lookup("at").AsInt64()))
	close(f.guest.more)
	f.guest.more = make(chan struct{})
	return nil
}

// window writes so many changes for the honest gateway, one every few milliseconds, waits until it
// has all of them, and returns how long the 99th percentile of them took.
func (f *fort) window(changes int) time.Duration {
	f.Helper()
	tick := time.NewTicker(4 * time.Millisecond)
	defer tick.Stop()
	from := f.seq
	for range changes {
		<-tick.C
		if _, err := f.coll("orders").InsertOne(f.Context(), bson.D{{Key: "seq", Value: f.seq}, {Key: "at", Value: time.Now().UnixNano()}}); err != nil {
			f.Fatal(err)
		}
		f.seq++
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		f.guest.Lock()
		wrong, more, got := f.guest.wrong, f.guest.more, len(f.guest.delays)
		var some []time.Duration
		for seq := from; seq < f.seq; seq++ {
			if d, there := f.guest.delays[int64(seq)]; there {
				some = append(some, d)
			}
		}
		f.guest.Unlock()
		if len(wrong) > 0 {
			f.Fatalf("the honest gateway got %v", wrong)
		}
		if len(some) == changes {
			slices.Sort(some)
			return some[len(some)*99/100]
		}
		select {
		case <-more:
		case <-timeout.C:
			f.Fatalf("the honest gateway has %d of %d changes", got, f.seq)
		}
	}
}

// A standing is what an attack must leave as it was.
type standing struct {
	health string
	epochs [partitions]change.Epoch
	series int // of metrics
}

// sample matches a line of metrics in text.
var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_]\w*="([^"\\\n]|\\.)*",?)*\})? [-+0-9.eEInfNa]+|# (HELP|TYPE) .*)$`)

// stand returns how the nodes do.
func (f *fort) stand() (all []standing) {
	f.Helper()
	for _, n := range f.nodes {
		all = append(all, f.standing(n))
	}
	return all
}

func (f *fort) standing(n *live) (s standing) {
	f.Helper()
	code, _ := look(n, "/health")
	s.health = fmt.Sprint(code, n.service.Health().Status)
	for p := range s.epochs {
		s.epochs[p] = n.service.Node().Epoch(change.Partition(p))
	}
	code, text := look(n, "/metrics")
	if code != http.StatusOK {
		f.Errorf("/metrics: %d %s", code, text)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if !sample.MatchString(line) {
			f.Errorf("/metrics has the line %q", line)
		}
		s.series++
	}
	return s
}

// unharmed fails the test where something is not as it was before an attack, at any node.
func (f *fort) unharmed(attack string, before []standing) {
	f.Helper()
	for i, after := range f.stand() {
		if after.health != before[i].health || after.epochs != before[i].epochs {
			f.Errorf("%s: health and ownership of node %d were %v, and are %v", attack, i, before[i], after)
		}
		if most := before[i].series + 400; after.series > most {
			f.Errorf("%s: metrics of node %d had %d lines, and have %d", attack, i, before[i].series, after.series)
		}
		notices, _ := f.nodes[i].service.Board().Since(0)
		for _, told := range notices {
			if told.Level == notice.Critical {
				f.Errorf("%s: operators are told %+v", attack, told)
			}
		}
	}
	if gaps := f.gaps(); len(gaps) > 0 {
		f.Errorf("%s: the gap log has %+v", attack, gaps)
	}
}

// dial dials from the intruder's address.
func (i *intruder) dial(ctx context.Context, address string) (net.Conn, error) {
	return from("127.0.1.1").DialContext(ctx, "tcp", address)
}

// call opens a session, and returns it after its welcome; nil where it is refused. end ends it and
// its connection.
func (i *intruder) call(change func(h *streampb.Hello), options ...grpc.DialOption) (s streampb.Gateway_ConnectClient, end func()) {
	i.attempts.Add(1)
	conn, err := grpc.NewClient("passthrough:///"+i.service.Gateway(), append([]grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(i.tls())), grpc.WithContextDialer(i.dial),
	}, options...)...)
	if err != nil {
		return nil, func() {}
	}
	end = func() { _ = conn.Close() }
	s, err = i.say(conn, change)
	if err != nil {
		end()
		return nil, func() {}
	}
	return s, end
}

func (i *intruder) tls() *tls.Config {
	cfg := i.ca.Client(i.T, "")
	cfg.ServerName = "localhost"
	return cfg
}

// say says hello on a connection.
func (i *intruder) say(conn *grpc.ClientConn, change func(h *streampb.Hello)) (streampb.Gateway_ConnectClient, error) {
	stream, err := streampb.NewGatewayClient(conn).Connect(withToken(i.ctx, i.token))
	if err != nil {
		return nil, err
	}
	h := &streampb.Hello{Start: streampb.Start_START_NOW, Subscriptions: []*streampb.Subscription{i.orders("all", "")}}
	change(h)
	if err := stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: h}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if _, err = stream.Recv(); err == nil {
		i.admitted.Add(1)
	}
	return stream, err
}

// orders is a subscription to what everybody may read.
func (i *intruder) orders(id, filter string) *streampb.Subscription {
	return &streampb.Subscription{Id: id, Db: "shop", Coll: "orders", Filter: filter}
}

// get asks over HTTP, and reads a part of the answer.
func (i *intruder) get(path string, header ...string) {
	i.attempts.Add(1)
	req, err := http.NewRequestWithContext(i.ctx, http.MethodGet, "https://"+i.service.Addr()+path, nil)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+i.token)
	for j := 0; j < len(header); j += 2 {
		req.Header.Set(header[j], header[j+1])
	}
	resp, err := i.web.Do(req)
	if err != nil {
		return
	}
	if resp.StatusCode == http.StatusOK {
		i.admitted.Add(1)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	_ = resp.Body.Close()
}

// again does something until the attack ends, with a breath after each time: what attackers compute
// on machines of their own would be taken from the node here.
func (i *intruder) again(do func(n int)) {
	breath := time.NewTicker(2 * time.Millisecond)
	defer breath.Stop()
	for n := 0; ; n++ {
		select {
		case <-i.ctx.Done():
			return
		case <-breath.C:
			do(n)
		}
	}
}

// inSession sends what it is given in a session until that or the attack ends, again and again.
func (i *intruder) inSession(hello func(h *streampb.Hello, n int), send func(n int) *streampb.ConnectRequest) {
	i.again(func(n int) {
		s, end := i.call(func(h *streampb.Hello) { hello(h, n) })
		defer end()
		if s == nil {
			return
		}
		for m := range 200 {
			i.attempts.Add(1)
			if i.ctx.Err() != nil || s.Send(send(n*200+m)) != nil {
				return
			}
		}
	})
}

// hold opens so many of something that is not read, and keeps them until the attack ends.
func (i *intruder) hold(most int, open func(n int) (end func())) {
	for n := range most {
		if i.ctx.Err() != nil {
			break
		}
		defer open(n)()
	}
	<-i.ctx.Done()
}

// raw opens a connection of TLS, and writes something.
func (i *intruder) raw(address, text string) net.Conn {
	i.attempts.Add(1)
	d := tls.Dialer{NetDialer: from("127.0.1.1"), Config: i.tls()}
	conn, err := d.DialContext(i.ctx, "tcp", address)
	if err != nil {
		return nil
	}
	_, _ = io.WriteString(conn, text)
	return conn
}

// frames opens a connection to the gRPC server whose frames the intruder writes itself; nil if that
// fails.
func (i *intruder) frames() *framed {
	cfg := i.tls()
	cfg.NextProtos = []string{"h2"}
	d := tls.Dialer{NetDialer: from("127.0.1.1"), Config: cfg}
	conn, err := d.DialContext(i.ctx, "tcp", i.service.Gateway())
	if err != nil {
		return nil
	}
	f := frame(conn)
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
	return f
}

// withToken returns a context of calls with a token, and more metadata.
func withToken(ctx context.Context, token string, more ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, append([]string{"authorization", "Bearer " + token}, more...)...)
}

// request is an acknowledgement.
func request(ack uint64) *streampb.ConnectRequest {
	return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: &streampb.Ack{Seq: ack}}}
}

// subscribing adds subscriptions.
func subscribing(all ...*streampb.Subscription) *streampb.ConnectRequest {
	return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{Subscriptions: all}}}
}

// named gives a session a name, and a process that starts in the future.
func named(h *streampb.Hello, name string) {
	h.Subscriber, h.ProcessId, h.StartedAt = name, name, timestamppb.New(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
}

// intrusions are what one identity does to others.
func intrusions() map[string]func(i *intruder) {
	return map[string]func(i *intruder){
		"names near the limits": func(i *intruder) {
			names := []string{strings.Repeat("n", 255), strings.Repeat("\U0001f40d", 63), "sink/out", "stdout", "honest/gateway", "a\x00b", "%2F%2F", strings.Repeat("/", 255)}
			i.again(func(n int) {
				i.get("/v1/events?db=shop&coll=orders&subscriber=" + url.QueryEscape(names[n%len(names)]))
				_, end := i.call(func(h *streampb.Hello) { named(h, names[n%len(names)]) })
				end()
			})
		},
		"bytes that are no text": func(i *intruder) {
			i.again(func(int) {
				i.get("/v1/events?db=shop&coll=orders&subscriber=%ff", "Last-Event-ID", "\xff\xfe")
				i.get("/v1/snapshot?db=%00&coll=%ff%fe&filter=%80")
			})
		},
		"the name of the honest": func(i *intruder) {
			i.again(func(int) {
				_, end := i.call(func(h *streampb.Hello) { named(h, "gateway") })
				end()
			})
		},
		"ever new names with failing checks": func(i *intruder) {
			i.inSession(func(h *streampb.Hello, n int) { named(h, fmt.Sprint("new-", n)) }, func(n int) *streampb.ConnectRequest {
				check := &streampb.Check{Name: fmt.Sprint("check-", n), Text: strings.Repeat("down ", 500)}
				return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: &streampb.Heartbeat{Checks: []*streampb.Check{check}}}}
			})
		},
		"forged positions": func(i *intruder) {
			i.again(func(n int) {
				_, end := i.call(func(h *streampb.Hello) {
					h.Cluster, h.PartitionCount, h.Position = "c", partitions, []byte(strings.Repeat(string(rune('A'+n%26)), 34))
					h.Generation = uint64(n) << 40
				})
				end()
				i.get("/v1/events?db=shop&coll=orders", "Last-Event-ID", strings.Repeat("A", n%500))
			})
		},
		"forged places of pages": func(i *intruder) {
			i.again(func(n int) {
				i.get("/v1/snapshot?db=shop&coll=items&from=" + strings.Repeat(string(rune('A'+n%26)), 8+n%3000))
			})
		},
		"beginnings in a past that is gone": func(i *intruder) {
			i.again(func(n int) {
				i.get("/v1/events?db=shop&coll=orders&start=2020-01-01T00:00:00Z&subscriber=" + fmt.Sprint("late-", n%20))
				_, end := i.call(func(h *streampb.Hello) { h.Start, h.Time = streampb.Start_START_TIME, timestamppb.New(time.Unix(1, 0)) })
				end()
			})
		},
		"catch-ups": func(i *intruder) {
			i.hold(40, func(int) func() {
				_, end := i.call(func(h *streampb.Hello) {
					h.Start, h.Subscriptions[0].Coll, h.Ack = streampb.Start_START_EARLIEST, "items", streampb.AckMode_ACK_MODE_AUTO
				})
				return end
			})
		},
		"snapshots": func(i *intruder) {
			i.hold(40, func(n int) func() {
				_, end := i.call(func(h *streampb.Hello) {
					named(h, fmt.Sprint("snapshot-", n))
					h.Start, h.Subscriptions[0].Coll, h.Subscriptions[0].Leaves = streampb.Start_START_SNAPSHOT, "items", true
				})
				return end
			})
		},
		"large pages": func(i *intruder) {
			i.again(func(int) {
				i.get("/v1/snapshot?db=shop&coll=items&limit=5000&filter=" + url.QueryEscape(`doc.text.contains("y")`))
			})
		},
		"other people's databases": func(i *intruder) {
			i.again(func(int) {
				for _, db := range []string{"admin", "config", "local", "streamer", "crm"} {
					i.get("/v1/snapshot?coll=system.users&db=" + db)
				}
			})
		},
		"snapshots with long ids": func(i *intruder) {
			i.again(func(n int) {
				s, end := i.call(func(h *streampb.Hello) {
					named(h, fmt.Sprint("wide-", n%3))
					h.Start, h.Subscriptions = streampb.Start_START_SNAPSHOT, nil
					for j := range 120 {
						h.Subscriptions = append(h.Subscriptions, i.orders(strings.Repeat("<", 240)+fmt.Sprint(j), ""))
					}
				})
				if s != nil {
					_, _ = s.Recv()
				}
				end()
			})
		},
		"long fields": func(i *intruder) {
			field := strings.Repeat("f", 40_000)
			fields := slices.Repeat([]string{field}, 90)
			i.again(func(int) {
				_, end := i.call(func(h *streampb.Hello) { h.Subscriptions[0].Fields = fields })
				end()
			})
		},
		"many subscriptions, added and removed": func(i *intruder) {
			i.inSession(func(*streampb.Hello, int) {}, func(n int) *streampb.ConnectRequest {
				var all []*streampb.Subscription
				var ids []string
				for j := range 100 {
					ids = append(ids, fmt.Sprint("s", j))
					all = append(all, i.orders(ids[j], fmt.Sprintf("doc.seq == %d", n+j)))
				}
				if n%2 == 0 {
					return subscribing(all...)
				}
				return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Unsubscribe{Unsubscribe: &streampb.Unsubscribe{Ids: ids}}}
			})
		},
		"filters that cost": func(i *intruder) {
			numbers := "[" + strings.Repeat("1,", 59) + "1]"
			i.hold(10, func(n int) func() {
				_, end := i.call(func(h *streampb.Hello) {
					h.Ack, h.Subscriptions = streampb.AckMode_ACK_MODE_AUTO, nil
					for j := range 50 {
						h.Subscriptions = append(h.Subscriptions, i.orders(fmt.Sprint(j), fmt.Sprintf("%[1]s.all(a, %[1]s.all(b, a + b + doc.seq > %[2]d))", numbers, -n*50-j-1000)))
					}
				})
				return end
			})
		},
		"lies about what was received": func(i *intruder) {
			seqs := []uint64{1 << 63, 0, 1, 1 << 40, 2}
			i.inSession(func(h *streampb.Hello, n int) {
				if h.Subscriber = "liar"; n%2 == 0 {
					h.Partitions = streampb.Partitions_PARTITIONS_OWNED
				}
			}, func(n int) *streampb.ConnectRequest {
				switch n % 3 {
				case 0:
					return request(seqs[n/3%len(seqs)])
				case 1:
					return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Detach{Detach: &streampb.Detach{Partitions: []uint32{0, uint32(n), 3}}}}
				}
				position := &streampb.PartitionPosition{Partition: uint32(n % partitions), Position: make([]byte, 34)}
				return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: &streampb.Attach{Positions: []*streampb.PartitionPosition{position}}}}
			})
		},
		"readers that do not read": func(i *intruder) {
			i.hold(60, func(n int) func() {
				if n%2 == 0 {
					_, end := i.call(func(h *streampb.Hello) { h.Ack = streampb.AckMode_ACK_MODE_AUTO },
						grpc.WithInitialWindowSize(1<<30), grpc.WithInitialConnWindowSize(1<<30))
					return end
				}
				conn := i.raw(i.service.Addr(), "GET /v1/events?db=shop&coll=orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+i.token+"\r\n\r\n")
				return func() {
					if conn != nil {
						_ = conn.Close()
					}
				}
			})
		},
		"huge metadata": func(i *intruder) {
			i.again(func(n int) {
				i.get("/v1/events?db=shop&coll=orders&filter="+strings.Repeat("%20", n%20_000), "X-Long", strings.Repeat("x", 30_000*(n%4)))
				ctx := withToken(i.ctx, i.token, "x-long", strings.Repeat("x", 7_000*(1+n%20)))
				other := &intruder{fort: i.fort, token: i.token, ctx: ctx}
				_, end := other.call(func(*streampb.Hello) {})
				end()
			})
		},
		"slow headers and bodies": func(i *intruder) {
			i.hold(200, func(n int) func() {
				text := []string{
					"GET /v1/events?db=shop&coll=orders HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
					"POST /v1/sinks/out/pause HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + i.token + "\r\nContent-Length: 1000000\r\n\r\nx",
					"GET /v1/gaps HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer " + i.token + "\r\n\r\n1\r\n",
				}[n%3]
				conn := i.raw(i.service.Addr(), text)
				return func() {
					if conn != nil {
						_ = conn.Close()
					}
				}
			})
		},
		"streams of notices": func(i *intruder) {
			i.hold(100, func(int) func() {
				conn := i.raw(i.service.Addr(), "GET /v1/notices HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+i.token+"\r\n\r\n")
				return func() {
					if conn != nil {
						_ = conn.Close()
					}
				}
			})
		},
		"what operators may": func(i *intruder) {
			i.again(func(int) {
				for _, path := range []string{"/v1/audit", "/v1/sinks", "/v1/status", "/v1/reports", "/v1/subscribers", "/v1/gaps", "/v1/history", "/v1/configuration"} {
					i.get(path)
				}
			})
		},
		"thousands of hellos": func(i *intruder) {
			conn, err := grpc.NewClient("passthrough:///"+i.service.Gateway(), grpc.WithTransportCredentials(credentials.NewTLS(i.tls())), grpc.WithContextDialer(i.dial))
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			i.again(func(int) {
				for range 10 {
					i.attempts.Add(1)
					_, _ = i.say(conn, func(*streampb.Hello) {})
				}
			})
		},
		"streams that are reset at once": func(i *intruder) {
			i.again(func(int) {
				f := i.frames()
				if f == nil {
					return
				}
				defer func() { _ = f.Close() }()
				for id := uint32(1); i.ctx.Err() == nil && f.beginAndReset(id, i.token) == nil; id += 2 {
					i.attempts.Add(1)
				}
			})
		},
		"live queries that begin again": func(i *intruder) {
			i.again(func(n int) {
				s, end := i.call(func(h *streampb.Hello) {
					named(h, fmt.Sprint("query-", n%5))
					h.Start = streampb.Start_START_SNAPSHOT
					h.Subscriptions = []*streampb.Subscription{{
						Id: "q", Db: "shop", Coll: "items", Filter: fmt.Sprintf("doc._id > %d", n), Leaves: true, OnLoss: streampb.OnLoss_ON_LOSS_SNAPSHOT, Format: streampb.Format_FORMAT_JSON,
					}}
				})
				if s != nil {
					_, _ = s.Recv()
				}
				end()
			})
		},
		"changes of documents": func(i *intruder) {
			i.again(func(n int) {
				i.get(fmt.Sprintf("/v1/changes?db=shop&coll=items&id=%d&start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z", n))
				i.get("/v1/changes?db=shop&coll=items&id=" + url.QueryEscape(strings.Repeat(`{"a":`, n%3000)) + "&from=" + strings.Repeat("A", n%500))
			})
		},
		"names that are cut off": func(i *intruder) {
			i.again(func(n int) {
				var cut sync.WaitGroup
				for j := range 10 {
					cut.Go(func() {
						_, end := i.call(func(h *streampb.Hello) { named(h, fmt.Sprint("cut-", (n*10+j)%40)) })
						end() // without a word
					})
				}
				cut.Wait()
			})
		},
		"wrong tokens": func(i *intruder) {
			other := &intruder{fort: i.fort, token: strings.Repeat("t", 8000), ctx: i.ctx, web: i.web}
			i.again(func(int) {
				i.attempts.Add(1)
				other.get("/v1/gaps")
				_, end := other.call(func(*streampb.Hello) {})
				end()
			})
		},
	}
}

// mostRounds is how many rounds an attack gets at most until its median is judged.
const mostRounds = 9

// cheapest is how long an attack may delay changes by the CPU time that it costs.
const cheapest = 50 * time.Millisecond

// welcome are the attacks of those who are admitted: they are at work before anything is measured.
func welcome() []string {
	return []string{
		"catch-ups", "changes of documents", "filters that cost", "large pages", "lies about what was received", "live queries that begin again",
		"names that are cut off", "many subscriptions, added and removed", "readers that do not read", "snapshots", "snapshots with long ids",
	}
}

// besieged lets each attack run while changes of the honest gateway are timed, after a window
// without an attack. The median of the 99th percentiles under attack is at most five times that of
// the windows without, of which less than floor counts as floor. An attack that is above it after
// so many rounds gets more of them: a machine may stand still for a moment. On a machine that
// others use, the floor is at least cheapest, as many times as they slow this process down: an
// attack costs CPU time, which takes longer there.
func besieged(t *testing.T, nodes, rounds, changes int, floor time.Duration) {
	attacks := intrusions()
	names := slices.Sorted(maps.Keys(attacks))
	f := buildFort(t, nodes, len(names))
	f.window(changes) // before anything is measured
	begun := f.stand()
	var quiet []time.Duration
	for n, name := range names {
		var under []time.Duration
		var slowed []float64
		within := func() bool {
			return median(under) <= 5*max(median(quiet), floor, time.Duration(float64(cheapest)*median(slowed)))
		}
		for r := 0; r < rounds || r < mostRounds && !within(); r++ {
			before := threadTime()
			quiet = append(quiet, f.window(changes))
			slowed = append(slowed, threadTime().slowed(before)) // not by what the attack has others do
			under = append(under, f.under(attacks[name], fmt.Sprint("evil", n), name, changes))
		}
		f.unharmed(name, begun)
		t.Logf("%-40s p99 %v, without an attack %v, others slow it down %.1f times", name, median(under), median(quiet), median(slowed))
		if !within() {
			t.Errorf("%s: the 99th percentile is %v, without an attack %v, others slow it down %.1f times", name, median(under), median(quiet), median(slowed))
		}
	}
	to := f.now()
	f.window(changes)
	f.until("the honest gateway has its checkpoint", func() bool { return f.reached("honest/gateway", to) })
}

// under runs an attack until changes have been timed beside it.
func (f *fort) under(attack func(*intruder), token, name string, changes int) time.Duration {
	f.Helper()
	ctx, end := context.WithCancel(f.Context())
	i := &intruder{fort: f, token: token, ctx: ctx}
	i.web = &http.Client{Transport: &http.Transport{TLSClientConfig: i.tls(), DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return i.dial(ctx, address)
	}}}
	var attacking sync.WaitGroup
	for range 3 {
		attacking.Go(func() { attack(i) })
	}
	f.until(name+" has begun", func() bool {
		return i.attempts.Load() > 0 && (i.admitted.Load() > 0 || !slices.Contains(welcome(), name))
	})
	p99 := f.window(changes)
	end()
	attacking.Wait()
	i.web.CloseIdleConnections()
	f.Logf("%-40s %d attempts, %d admitted", name, i.attempts.Load(), i.admitted.Load())
	return p99
}

// median returns the middle one, of several.
func median[T cmp.Ordered](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// Whatever an identity with the same rights does, an honest one gets everything, in order, soon and
// in one session, and what operators see stays as it is.
func TestTenantsHarmNobody(t *testing.T) {
	t.Parallel()
	besieged(t, 1, 1, 25, 200*time.Millisecond)
}
