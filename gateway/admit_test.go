package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A list is a file of identities, and who goes by it.
type list struct {
	*testing.T

	path string
}

// newList makes a list of lines: a token, a blank, and what its bearer is called and may do.
func newList(t *testing.T, lines ...string) *list {
	t.Helper()
	l := &list{t, filepath.Join(t.TempDir(), "identities")}
	l.write(lines...)
	return l
}

func (l *list) write(lines ...string) {
	l.Helper()
	var text strings.Builder
	for _, line := range lines {
		token, rest, _ := strings.Cut(line, " ")
		fmt.Fprintf(&text, "token %s %s\n", access.Hash(token), rest)
	}
	if err := os.WriteFile(l.path, []byte(text.String()), 0o600); err != nil {
		l.Fatal(err)
	}
}

// config is that of a server that lets in who is listed.
func (l *list) config(cfg gateway.Config) gateway.Config {
	l.Helper()
	var err error
	if cfg.Access, err = access.New(access.Config{Identities: l.path, Recheck: 50 * time.Millisecond}); err != nil {
		l.Fatal(err)
	}
	return cfg
}

// bearing returns a context whose calls show a token.
func bearing(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// openAs is open with a token.
func (w *world) openAs(token string, h *streampb.Hello) *session {
	w.Helper()
	return w.open(bearing(w.Context(), token), h)
}

func TestWhoConnectsIsAskedBeforeAnythingElse(t *testing.T) {
	w := newWorld(t, options{server: newList(t, "good name=a namespace=*").config(gateway.Config{})})
	for name, s := range map[string]*session{"nothing": w.open(t.Context(), hello(nil)), "another token": w.openAs("bad", hello(nil)), "a bad hello": w.openAs("bad", &streampb.Hello{})} {
		if code, reason, text := s.ends(); code != codes.Unauthenticated || reason != string(fault.AccessUnauthenticated) || strings.Contains(text, "bad") {
			t.Errorf("%s: %s %s %s", name, code, reason, text)
		}
	}
	next(w.openAs("good", hello(nil)), (*streampb.ConnectResponse).GetSubscribed)
	conn := w.conn()
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	for token, want := range map[string]codes.Code{"bad": codes.Unauthenticated, "good": codes.OK} {
		stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(bearing(t.Context(), token))
		if err == nil {
			err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
		}
		if err == nil || errors.Is(err, io.EOF) {
			_, err = stream.Recv()
		}
		if code, _, _ := explained(err); code != want {
			t.Errorf("reflection with token %q: %v", token, err)
		}
	}
}

func TestSubscriptionsKeepWithinWhatTheIdentityMay(t *testing.T) {
	w := newWorld(t, options{server: newList(t, "t name=a namespace=shop.* max_subscriptions=3").config(gateway.Config{})})
	in := func(id, db, coll string) *streampb.Subscription {
		return &streampb.Subscription{Id: id, Db: db, Coll: coll}
	}
	first := w.openAs("t", hello(func(h *streampb.Hello) {
		h.Subscriber, h.Subscriptions = "1", []*streampb.Subscription{in("all", "", ""), in("db", "crm", ""), in("crm", "crm", "x"), in("a", "shop", "a"), in("b", "shop", "b")}
	}))
	const forbidden, limit = string(fault.AccessForbidden), string(fault.AccessLimit)
	expect := func(s *session, want ...string) {
		t.Helper()
		ids, codes := s.answers(len(want))
		for i := range ids {
			ids[i] = strings.TrimSuffix(ids[i]+" "+codes[i], " ")
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%q, want %q", ids, want)
		}
	}
	expect(first, "all "+forbidden, "db "+forbidden, "crm "+forbidden, "a", "b")
	second := w.openAs("t", hello(func(h *streampb.Hello) {
		h.Subscriber, h.Subscriptions = "2", []*streampb.Subscription{in("c", "shop", "c"), in("d", "shop", "d")}
	}))
	expect(second, "c", "d "+limit)
	first.subscribe(in("a", "shop", "other"), in("e", "shop", "e")) // the one takes the place of another
	expect(first, "a", "e "+limit)
	first.unsubscribe("a", "a", "never")
	first.subscribe(in("e", "shop", "e"), in("f", "shop", "f"))
	expect(first, "e", "f "+limit)
	if err := second.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for err := error(nil); err == nil; {
		_, err = second.Recv()
	}
	third := w.openAs("t", hello(func(h *streampb.Hello) {
		h.Subscriber, h.Subscriptions = "3", []*streampb.Subscription{in("g", "shop", "g")}
	}))
	expect(third, "g")
}

func TestSessionEndsWhenItsTokenIsRevoked(t *testing.T) {
	l := newList(t, "good name=a namespace=*", "other name=b namespace=*")
	w := newWorld(t, options{server: l.config(gateway.Config{}), hub: delivery.Config{CreditBytes: 64 << 20}})
	s := w.openAs("good", hello(nil))
	next(s, (*streampb.ConnectResponse).GetSubscribed)
	deaf := w.openAs("good", hello(func(h *streampb.Hello) { h.Subscriber = "deaf" })) // it takes nothing of what comes now
	next(deaf, (*streampb.ConnectResponse).GetSubscribed)
	other := w.openAs("other", hello(func(h *streampb.Hello) { h.Subscriber = "other" }))
	next(other, (*streampb.ConnectResponse).GetSubscribed)
	for i := range 200 {
		w.source.Append(changetest.Event{ID: int64(i), Pad: 10_000})
	}
	other.events(200)
	l.write("other name=b namespace=*")
	if code, reason, _ := s.ends(); code != codes.Unauthenticated || reason != string(fault.AccessUnauthenticated) {
		t.Errorf("%s %s", code, reason)
	}
	w.until("the session that takes nothing is over", func() bool {
		n, _ := w.sessions()
		return n == 1
	})
	w.source.Append(changetest.Event{ID: 1})
	other.events(1)
}

// What an identity is sent keeps to its rate, over all its connections; nothing is dropped.
func TestEventsComeAtTheIdentitysPace(t *testing.T) {
	w := newWorld(t, options{server: newList(t, "t name=a namespace=* events_per_second=500").config(gateway.Config{})})
	var sessions [2]*session
	for i := range sessions {
		sessions[i] = w.openAs("t", hello(func(h *streampb.Hello) { h.Subscriber, h.Ack = fmt.Sprint(i), streampb.AckMode_ACK_MODE_AUTO }))
		next(sessions[i], (*streampb.ConnectResponse).GetSubscribed)
	}
	start := time.Now()
	const n = 1000
	for i := range n {
		w.source.Append(changetest.Event{ID: int64(i)})
	}
	sessions[0].events(n)
	sessions[1].events(n)
	if took, least := time.Since(start), 2800*time.Millisecond; took < least {
		t.Errorf("%d events at 500 a second took %s", 2*n, took)
	}
}
