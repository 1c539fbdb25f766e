package backend

import (
	"testing"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/retention/retentiontest"
)

// A chain is that of a deployment's id. Where only a name is known, which others may have, too, it
// is the cluster's own.
func TestChainsAreOfDeployments(t *testing.T) {
	for source, shared := range map[string]bool{
		"replicaset/rs0":                                   false,
		"replicaset/65f1c0ffee65f1c0ffee65f1":              false, // a name
		"sharded":                                          false,
		"replicaset/rs0/65f1c0ffee65f1c0ffee65f1":          true,
		"sharded/65f1c0ffee65f1c0ffee65f1":                 true,
		"replicaset/rs0/not an id":                         false,
		"replicaset/sharded/65f1c0ffee65f1c0ffee65f1/more": false,
	} {
		of := func(cluster string) string {
			return Chain(&retentiontest.Memory{}, checkpoint.Origin{Cluster: cluster, Incarnation: 1, Source: source}).Folder()
		}
		if (of("A") == of("B")) != shared {
			t.Errorf("%s: %s and %s", source, of("A"), of("B"))
		}
	}
}
