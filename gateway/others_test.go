package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"google.golang.org/grpc/peer"
)

// A machine has all addresses of an IPv6 network of 64 bits, and may make no more calls of other
// services than a host of one address.
func TestOtherCallsAreBoundedByNetwork(t *testing.T) {
	others := &others{of: make(map[netip.Addr]int)}
	from := func(address string) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(address), Port: 5}})
	}
	served := 0
	for i := range maxOthersOfAddress + 1 {
		if _, err := others.enter(from(fmt.Sprintf("2001:db8:1:2::%x", i+1)), "Watch"); err == nil {
			served++
		}
	}
	if served != maxOthersOfAddress {
		t.Errorf("%d calls of one network were served, want %d", served, maxOthersOfAddress)
	}
	if _, err := others.enter(from("2001:db8:1:3::1"), "Watch"); err != nil {
		t.Errorf("another network: %v", err)
	}
}

// A connection remembers which subscriptions have ended since its checkpoint was saved, and takes
// any for one of them where they are too many.
func TestEndedSubscriptionsAreRemembered(t *testing.T) {
	var ended endedIDs
	if ended.has("a") {
		t.Error("nothing has ended")
	}
	ended.add([]string{"a", "b"})
	if !ended.has("a") || !ended.has("b") || ended.has("c") {
		t.Errorf("%v", ended)
	}
	for i := range mostEnded {
		ended.add([]string{strconv.Itoa(i)})
	}
	if !ended.has("c") || len(ended) > mostEnded+1 {
		t.Errorf("%d are remembered", len(ended))
	}
}
