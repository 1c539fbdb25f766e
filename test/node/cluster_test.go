package node

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/notice"
)

// several are the settings of a node of two.
func several(node string) []string {
	return []string{
		"STREAMER_NODE_ID=" + node, "STREAMER_CLUSTER_EXPECTED_NODES=2", "STREAMER_CLUSTER_SETTLE_TIME=200ms",
		"STREAMER_RELIABILITY_SHUTDOWN_DRAIN_TIMEOUT=0s",
	}
}

// A subscriber has its session with one node, and an operator moves it back, by a command or on the
// page of another node: that node tells of it, or the next save.
func TestSubscribersOfEveryNodeAreToldOfARewind(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	nodes := []*live{r.begin(several("n1")...), r.begin(several("n2")...)}
	everything := client.Subscription{ID: "all", DB: "shop"}
	programs := make([]*program, len(nodes))
	for i, n := range nodes {
		programs[i] = n.connect(client.Config{Subscriber: fmt.Sprint("g", i)}, everything)
		programs[i].told(t, "connected", connected)
	}
	nodes[0].until("all partitions are owned", func() bool {
		owned := 0
		for p := range change.Partition(partitions) {
			for _, n := range nodes {
				if n.service.Node().Epoch(p) != (change.Epoch{}) {
					owned++
				}
			}
		}
		return owned == partitions
	})
	began := r.now()
	r.insert("a", "b", "c", "d", "e", "f", "g", "h")
	for _, p := range programs {
		p.takes(t, 8)
	}
	for i, p := range programs {
		name := fmt.Sprint("g", i)
		nodes[i].until("a checkpoint after the changes", func() bool { return r.reached(name, began.Next()) })
		if other := nodes[1-i]; i == 0 {
			target := fmt.Sprintf("http://%s/v1/subscribers/rewind?subscriber=%s&to=%d:%d", other.service.Addr(), name, began.T, began.I)
			if resp, text := other.send(http.MethodPost, target, "Sec-Fetch-Site", "same-origin"); resp.StatusCode != http.StatusAccepted {
				t.Fatalf("%s: %s", resp.Status, text)
			}
		} else {
			if _, err := r.store.Rewind(t.Context(), checkpoint.Key{Subscriber: name}, change.At(began), "operator", "test"); err != nil {
				t.Fatal(err)
			}
			other.service.Board().Post(rewound(name)) // as an operator's command has every node tell the others
		}
		p.told(t, fmt.Sprintf("subscriber %d hears of a rewind", i), func(n client.Notice) bool {
			_, ok := n.(client.Rewound)
			return ok
		})
		p.takes(t, 8) // once more
	}
}

// rewound is what is posted when an operator has moved a subscriber.
func rewound(subscriber string) notice.Notice {
	return notice.Notice{
		Channel: notice.Resync, Kind: notice.KindRewound, Level: notice.Warning, Text: "moved", Fields: map[string]any{"subscriber": subscriber},
	}
}
