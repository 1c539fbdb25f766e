package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A tap has every byte that a client has received.
type tap struct {
	name string
	mu   struct {
		sync.Mutex
		all bytes.Buffer
	}
}

func (p *tap) add(text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.all.Write(text)
	p.mu.all.WriteByte('\n')
}

func (p *tap) has(text string) bool { return p.count(text) > 0 }

func (p *tap) count(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Count(p.mu.all.Bytes(), []byte(text))
}

func (p *tap) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%s received\n%q", p.name, p.mu.all.String())
}

// requestAs sends a GET request with a token, and has the tap receive the answer as it comes. done
// is closed when it is complete.
func (n *live) requestAs(ctx context.Context, token, path string) (p *tap, done <-chan struct{}) {
	n.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.service.Addr()+path, nil)
	if err != nil {
		n.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Close = true
	p = &tap{name: token + " " + path}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		defer func() { _ = resp.Body.Close() }()
		p.add([]byte(resp.Status + fmt.Sprint(resp.Header)))
		for part := make([]byte, 64<<10); ; {
			n, err := resp.Body.Read(part)
			p.add(part[:n])
			if err != nil {
				return
			}
		}
	}()
	return p, ended
}

// answerAs returns a complete answer.
func (n *live) answerAs(token, path string) *tap {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	p, done := n.requestAs(ctx, token, path)
	<-done
	return p
}

// call opens a session over gRPC, and has the tap receive its messages, and how it ends.
func (n *live) call(ctx context.Context, token, subscriber, db, coll string) (p *tap, done <-chan struct{}) {
	n.Helper()
	conn, err := grpc.NewClient(n.service.Gateway(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.Fatal(err)
	}
	p = &tap{name: token + " gRPC " + subscriber}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = conn.Close() }()
		stream, err := streampb.NewGatewayClient(conn).Connect(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token))
		if err != nil {
			p.add([]byte(err.Error()))
			return
		}
		hello := &streampb.Hello{
			Subscriber: subscriber, ProcessId: subscriber + "/process", StartedAt: timestamppb.Now(), Start: streampb.Start_START_NOW, Ack: streampb.AckMode_ACK_MODE_AUTO,
			Subscriptions: []*streampb.Subscription{{Id: "s", Db: db, Coll: coll, Format: streampb.Format_FORMAT_JSON}},
		}
		if err := stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: hello}}); err != nil && err != io.EOF { //nolint:errorlint // as documented
			p.add([]byte(err.Error()))
			return
		}
		_ = stream.CloseSend() // it only listens
		for {
			m, err := stream.Recv()
			if err != nil {
				p.add([]byte(err.Error()))
				return
			}
			text, err := proto.Marshal(m)
			if err != nil {
				p.add([]byte(err.Error()))
				return
			}
			p.add(text)
		}
	}()
	return p, ended
}

// Two tenants of a node, each with a collection of its own: whatever happens, nothing that one of
// them receives names what is the other's, nor where MongoDB and etcd are. Who may read everything
// is told.
func TestTenantsSeeNothingOfEachOther(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "identities")
	enlist(t, list, "a name=tenant-a namespace=shop.orders", "b name=tenant-b namespace=shop.ledger", "o name=operator namespace=*")
	r := newRig(t, devmongo.Config{Release: "7.0"}, "STREAMER_MONGODB_WATCH=shop.orders,shop.ledger,shop.stolen", "STREAMER_ACCESS_IDENTITIES_FILE="+list, patient)
	n := r.beginWith(nil)
	n.status()
	ctx, cancel := context.WithCancel(t.Context())
	var ends []<-chan struct{}
	t.Cleanup(func() {
		cancel()
		for _, done := range ends {
			<-done
		}
	})
	request := func(token, path string) *tap {
		p, done := n.requestAs(ctx, token, path)
		ends = append(ends, done)
		return p
	}
	call := func(token, subscriber, db, coll string) *tap {
		p, done := n.call(ctx, token, subscriber, db, coll)
		ends = append(ends, done)
		return p
	}
	const orders = "/v1/events?db=shop&coll=orders"
	streams := []*tap{request("a", orders), request("a", orders+"&subscriber=sub-a"), call("a", "grpc-a", "shop", "orders")}
	notices := request("a", "/v1/notices")
	others := []*tap{call("b", "sub-b", "shop", "ledger"), request("b", "/v1/events?db=shop&coll=ledger&subscriber=sse-b")}
	operator := []*tap{request("o", "/v1/notices"), call("o", "sub-o", "", "")}
	sessions := func(most int) func() bool {
		return func() bool { return len(n.service.Node().Subscribers()) == most }
	}
	n.until("all are connected", func() bool {
		return sessions(5)() && streams[0].has("connected") && notices.has("connected") && operator[0].has("connected")
	})

	write := func(coll string, id any) {
		t.Helper()
		if _, err := r.coll(coll).InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}}); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		r.command(bson.D{{Key: "renameCollection", Value: from}, {Key: "to", Value: to}, {Key: "dropTarget", Value: true}})
	}
	r.insert("first")
	write("ledger", "foreign")
	rename("shop.ledger", "shop.orders") // the other's onto one's own
	r.insert("second")
	rename("shop.orders", "shop.stolen") // and away
	write("more", "more")
	rename("shop.more", "shop.ledger") // which only the other is told of
	write("ledger", strings.Repeat("k", 9<<20))
	r.insert("third")
	to := r.now()
	write("ledger", "fourth")
	n.until("the other has a checkpoint", func() bool { return r.reached("tenant-b/sub-b", to) })
	if _, err := r.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "tenant-b/sub-b"}, change.At(to), "root@bastion", "why"); err != nil {
		t.Fatal(err)
	}
	n.service.Node().Rewound("tenant-b/sub-b")
	n.until("the operator is told of the rewind", func() bool { return operator[0].has("sub-b") && operator[1].has("sub-b") })
	n.until("the loss is in the gap log", func() bool { return len(r.gaps()) > 0 })
	r.insert("last")
	n.until("everything has arrived", func() bool {
		for _, p := range streams {
			if !p.has(`"last"`) {
				return false
			}
		}
		return notices.count("event: service_resync") == 2 && others[0].has("foreign") && others[1].has("fourth") && operator[1].has(`"last"`)
	})
	for _, p := range streams {
		for _, want := range []string{`"first"`, `"second"`, `"third"`, `"rename"`, string(gap.Renamed), string(gap.Poison)} {
			if !p.has(want) {
				t.Errorf("no %s: %s", want, p)
			}
		}
	}

	received := append(streams, notices)
	for _, path := range []string{"/v1/gaps", "/v1/subscribers", "/v1/history?subscriber=tenant-b%2Fsub-b", "/metrics", "/health", "/readyz"} {
		received = append(received, n.answerAs("a", path), n.answerAs("", path))
	}
	if p := n.answerAs("", "/metrics"); !p.has("streamer_subscriber_lag_seconds") || !p.has("streamer_identity_sessions") {
		t.Errorf("metrics without a token: %s", p)
	}
	if p := n.answerAs("a", "/v1/subscribers"); !p.has("sub-a") || !p.has("grpc-a") {
		t.Error(p)
	}
	for path, want := range map[string]string{"/v1/gaps": "shop.ledger", "/v1/subscribers": "sub-b", "/metrics": `subscriber="tenant-b/sub-b"`} {
		if p := n.answerAs("o", path); !p.has(want) {
			t.Errorf("no %s: %s", want, p)
		}
	}
	if p := n.answerAs("a", "/v1/gaps"); !p.has("shop.orders") {
		t.Error(p)
	}
	for _, want := range []string{"shop.ledger", "shop.stolen"} {
		if !operator[0].has(want) {
			t.Errorf("the operator is not told of %s: %s", want, operator[0])
		}
	}

	mongo, err := url.Parse(r.server.URI())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range received {
		for _, foreign := range []string{"ledger", "stolen", "foreign", "tenant-b", "sub-b", "sse-b", "sub-o", "root@bastion", mongo.Host, r.endpoint()} {
			if p.has(foreign) {
				t.Errorf("%s\nnames %s", p, foreign)
			}
		}
	}
}
