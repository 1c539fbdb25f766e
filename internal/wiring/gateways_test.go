package wiring

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/gateway"
)

// Whatever gateways call themselves and their checks, and whenever they say to have started, the
// heartbeat is written and small.
func TestGatewaysOfAHeartbeatAreBounded(t *testing.T) {
	now, worst := time.Unix(5000, 0), strings.Repeat("\x01", 256)
	var many []string
	for i := range 32 {
		many = append(many, fmt.Sprintf("%02d", i)+worst[2:])
	}
	var peers []gateway.Peer
	for i := range cluster.MaxGateways - 2 {
		name := fmt.Sprintf("%03d", i) + strings.Repeat("x", 253)
		peers = append(peers, gateway.Peer{Name: name, Process: name, Started: now, Since: now, Reported: now, Failing: many})
	}
	peers = append(peers, gateway.Peer{Name: worst, Process: worst}, gateway.Peer{Name: "y", Started: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)})
	gateways := gatewaysOf(peers, now)
	text, err := json.Marshal(cluster.Heartbeat{Gateways: gateways})
	if err != nil || len(text) > 257<<10 {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	if len(gateways) != cluster.MaxGateways-2 || gateways[0].Failing[len(gateways[0].Failing)-1] != "32 others" {
		t.Errorf("%d gateways, the first %+v", len(gateways), gateways[0])
	}

	short := gatewaysOf([]gateway.Peer{{Name: "orders", Process: "p", Reported: now.Add(-time.Second), Failing: []string{"cache"}}}, now)[0]
	if short.Silence != time.Second || len(short.Failing) != 1 || short.Left {
		t.Errorf("%+v", short)
	}
	some := gatewaysOf([]gateway.Peer{{Name: "orders", Failing: append([]string{"cache"}, many...)}}, now)[0]
	if some.Failing[0] != "cache" || some.Failing[len(some.Failing)-1] != "32 others" || len(many[31]) != 256 {
		t.Errorf("%q", some.Failing)
	}
}
