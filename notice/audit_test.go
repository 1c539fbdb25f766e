package notice_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/notice"
)

// kinds counts the notices of a board by their kind.
func kinds(b *notice.Board) map[string]int {
	count := make(map[string]int)
	all, _ := b.Since(0)
	for _, n := range all {
		if err := notice.Check(n); err != nil {
			panic(err)
		}
		count[n.Kind]++
	}
	return count
}

// Whoever connects again and again, from wherever, and as whomever, writes a bounded number of
// records, which say how many more there were.
func TestNobodyFloodsTheAuditLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := notice.NewBoard(notice.Config{Node: "n", Keep: 10_000})
		a := notice.NewAuditor(notice.AuditConfig{Registerer: reg}, b)
		ctx, cancel := context.WithCancel(t.Context())
		go a.Run(ctx)
		for range 1000 {
			a.Refused("grpc", "192.0.2.1", "unknown_token")
			a.Accepted("http", "192.0.2.2", "polls")
			a.Session("http", "192.0.2.2:1", "restless", "s")("left")
		}
		if got := kinds(b); got[notice.KindLoginRefused] != 1 || got[notice.KindLoginAccepted] != 1 ||
			got[notice.KindSessionBegan]+got[notice.KindSessionEnded] != 20 {
			t.Errorf("at once: %v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		all, _ := b.Since(0)
		told := map[string]any{}
		for _, n := range all {
			told[n.Kind] = n.Fields["count"]
		}
		if told[notice.KindLoginRefused] != 999 || told[notice.KindAuditOmitted] != 1980 || told[notice.KindLoginAccepted] != 1 {
			t.Errorf("after a minute: %v", told)
		}
		for i := range 5000 { // of as many addresses and identities
			a.Refused("grpc", fmt.Sprint("10.0.", i/256, ".", i%256), "unknown_token")
			a.Accepted("grpc", "192.0.2.3", fmt.Sprint("i", i))
			a.Session("grpc", "192.0.2.3:1", fmt.Sprint("i", i), "s")("left")
		}
		if got := kinds(b); got[notice.KindLoginRefused] > 2+60 || got[notice.KindLoginAccepted] > 1+60 || got[notice.KindSessionBegan]+got[notice.KindSessionEnded] > 20+60 {
			t.Errorf("of many: %v", got)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if n := len(f.GetMetric()); n > 101 {
				t.Errorf("%s has %d labels", f.GetName(), n)
			}
		}
		time.Sleep(2 * time.Hour)
		cancel()
		synctest.Wait()
		all, _ = b.Since(0)
		for _, n := range all {
			if n.Kind == notice.KindLoginAccepted && n.Fields["identity"] == "polls" {
				told["polls"] = n.Fields["count"]
			}
		}
		if told["polls"] != 999 {
			t.Errorf("after an hour: %v", told)
		}
	})
}

// ofClients are notices that a client can cause as often as it likes.
func ofClients() []notice.Notice {
	return []notice.Notice{
		{Channel: notice.Health, Kind: notice.KindRestarted, Level: notice.Warning, Fields: map[string]any{"member_kind": notice.MemberGateway}},
		{Channel: notice.Health, Kind: notice.KindSubscriberReplaced, Level: notice.Warning},
	}
}

// Noise pushes nothing else out.
func TestHistoriesHaveTheirOwnBounds(t *testing.T) {
	b := notice.NewBoard(notice.Config{Node: "n", Keep: 10})
	b.Post(notice.Notice{Channel: notice.Audit, Kind: notice.KindOperated, Text: "drained"})
	b.Post(notice.Notice{Channel: notice.Health, Kind: notice.KindDead, Text: "dead"})
	for _, n := range ofClients() {
		for range 500 {
			b.Post(n)
		}
	}
	for range 1000 {
		b.Post(notice.Notice{Channel: notice.Audit, Kind: notice.KindLoginRefused, Text: "noise"})
	}
	all, missed := b.Since(0)
	if len(all) != 22 || missed != 1980 || all[0].Text != "drained" || all[1].Text != "dead" || all[21].ID != 2002 {
		t.Errorf("%d missed: %+v", missed, all)
	}
	if rest, missed := b.Since(2000); len(rest) != 2 || missed != 0 {
		t.Errorf("%d missed: %+v", missed, rest)
	}
}
