package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/streampb"
)

// peers describes the node's peers.
func (w *world) peers() (all []string) {
	listed, unlisted := w.server.Peers()
	for _, p := range listed {
		text := p.Name + " " + p.Process + " fails " + strings.Join(p.Failing, ",")
		if p.Left {
			text = p.Name + " left"
		}
		all = append(all, text)
	}
	if unlisted > 0 {
		all = append(all, fmt.Sprint(unlisted, " more"))
	}
	return all
}

func (w *world) untilPeers(want ...string) {
	w.Helper()
	w.until(fmt.Sprintf("the node's peers are %q", want), func() bool { return slices.Equal(w.peers(), want) })
}

func (s *session) beat(checks ...*streampb.Check) {
	s.Helper()
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: &streampb.Heartbeat{Checks: checks}}})
}

func failing(names ...string) (checks []*streampb.Check) {
	for _, name := range names {
		checks = append(checks, &streampb.Check{Name: name})
	}
	return append(checks, &streampb.Check{Name: "well", Ok: true})
}

func TestChecksReachTheNode(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{KeepLeft: time.Hour}})
	w.connect(hello(func(h *streampb.Hello) { h.Subscriber = "" })) // is nobody
	began := time.Now()
	orders := w.connect(hello(func(h *streampb.Hello) { h.Subscriber, h.Checks = "orders", failing("disk", "cache", "disk") }))
	w.untilPeers("orders p fails cache,disk")
	if all, _ := w.server.Peers(); all[0].Started.Unix() != 1000 || all[0].Since.Before(began) || all[0].Reported.Before(began) || all[0].Left {
		t.Errorf("%+v", all[0])
	}
	orders.beat(failing("cache")...)
	w.untilPeers("orders p fails cache")
	orders.beat(failing()...)
	w.untilPeers("orders p fails ")

	again := w.connect(hello(func(h *streampb.Hello) { h.Subscriber, h.ProcessId = "orders", "q" })) // which ends the session of the one before
	orders.ends()
	w.untilPeers("orders q fails ")
	if err := again.CloseSend(); err != nil {
		t.Fatal(err)
	}
	again.ends()
	w.untilPeers("orders left")
	w.connect(hello(func(h *streampb.Hello) { h.Subscriber, h.ProcessId = "orders", "q" }))
	w.untilPeers("orders q fails ")
}

// Who closes its session is named for a while, and who is cut off is not.
func TestPeersLeaveOrAreCutOff(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{KeepLeft: 50 * time.Millisecond}})
	conn := w.conn()
	cut := *w
	cut.client = streampb.NewGatewayClient(conn)
	cut.connect(named("cut"))
	left := w.connect(named("left"))
	w.untilPeers("cut p fails ", "left p fails ")
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	w.untilPeers("left p fails ")
	if err := left.CloseSend(); err != nil { // it only listens from now on
		t.Fatal(err)
	}
	w.write(1, 0)
	left.events(1)
	w.untilPeers("left p fails ")
}

// Whoever is listed stays so while others come; who is not is counted, and listed when there is
// room.
func TestListOfPeersIsBounded(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{MaxPeers: 2, KeepLeft: 50 * time.Millisecond}})
	sessions := map[string]*session{}
	for _, name := range []string{"d", "c", "b", "a"} {
		sessions[name] = w.connect(hello(func(h *streampb.Hello) { h.Subscriber = name }))
		w.peers()
	}
	w.untilPeers("c p fails ", "d p fails ", "2 more")
	w.connect(hello(func(h *streampb.Hello) { h.Subscriber, h.ProcessId = "c", "q" }))
	w.untilPeers("c q fails ", "d p fails ", "2 more")
	if err := sessions["a"].CloseSend(); err != nil { // nobody knows it
		t.Fatal(err)
	}
	w.untilPeers("c q fails ", "d p fails ", "1 more")
	if err := sessions["d"].CloseSend(); err != nil {
		t.Fatal(err)
	}
	w.untilPeers("b p fails ", "c q fails ")
}

func TestChecksAreBounded(t *testing.T) {
	w := newWorld(t, options{})
	many := make([]string, 32)
	for i := range many {
		many[i] = fmt.Sprint("check", i)
	}
	for name, checks := range map[string][]*streampb.Check{
		"too many": failing(many...), "a long name": failing(strings.Repeat("x", 257)), "no name": failing(""),
	} {
		code, reason, text := w.open(t.Context(), hello(func(h *streampb.Hello) { h.Checks = checks })).ends()
		if code != codes.InvalidArgument || reason != string(fault.SessionBadRequest) || !strings.Contains(text, "check") {
			t.Errorf("%s: %s %s %q", name, code, reason, text)
		}
		s := w.connect(hello(func(h *streampb.Hello) { h.Checks = failing(many[:31]...) }))
		s.beat(checks...)
		if code, reason, _ := s.ends(); code != codes.InvalidArgument || reason != string(fault.SessionBadRequest) {
			t.Errorf("%s, later: %s %s", name, code, reason)
		}
	}
}
