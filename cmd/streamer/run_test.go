package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/cmd/streamer/operator"
	"github.com/mongostream/streamer/fault"
)

// An empty connection string, as of a variable of a shell that is not set, is not the default one.
func TestEmptyConnectionStringIsRefused(t *testing.T) {
	for _, of := range []string{"run", "check"} {
		root := command()
		root.SetArgs([]string{of, "--mongodb-uri", "", "-o", "none"})
		if err := root.ExecuteContext(t.Context()); fault.Of(err) != fault.CommandBadArgument || !strings.Contains(err.Error(), "--mongodb-uri") {
			t.Errorf("%s: %v", of, err)
		}
	}
}

// A connection string alone is enough for one node; whatever says more is obeyed.
func TestConnectionStringAloneIsEnough(t *testing.T) {
	const backend = "STREAMER_RELIABILITY_CHECKPOINT_BACKEND=mongo"
	for _, c := range []struct {
		of, file, uri string
		environment   []string
		inMongoDB     bool
	}{
		{"a flag", "", "mongodb://a", []string{"STREAMER_NODE_ID=a", "HOME=/"}, true},
		{"no flag", "", "", []string{"STREAMER_MONGODB_URI=mongodb://b"}, false},
		{"a file", "f.yaml", "mongodb://a", nil, false},
		{"etcd", "", "mongodb://a", []string{"STREAMER_ETCD_ENDPOINTS=etcd:2379"}, false},
		{"three nodes", "", "mongodb://a", []string{"STREAMER_CLUSTER_EXPECTED_NODES=3"}, false},
		{"one node", "", "mongodb://a", []string{"STREAMER_CLUSTER_EXPECTED_NODES=1"}, true},
		{"a backend", "", "mongodb://a", []string{"STREAMER_RELIABILITY_CHECKPOINT_BACKEND=etcd"}, false},
	} {
		given := append(slices.Clone(c.environment), "STREAMER_MONGODB_URI=mongodb://b", "STREAMER_MONGODB_URI_FILE=/b")
		with, inMongoDB := operator.Alone(given, c.file, c.uri)
		uri := "STREAMER_MONGODB_URI=mongodb://b"
		if c.uri != "" {
			uri = "STREAMER_MONGODB_URI=" + c.uri
		}
		if inMongoDB != c.inMongoDB || slices.Contains(with, backend) != c.inMongoDB || !slices.Contains(with, uri) || c.uri != "" && slices.Contains(with, "STREAMER_MONGODB_URI=mongodb://b") {
			t.Errorf("%s: %t, %q", c.of, inMongoDB, with)
		}
	}
}
