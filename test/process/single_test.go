package process

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// One node needs nothing but MongoDB's address, and so does the check before it: it says that it
// keeps its checkpoints there, and after a crash it continues at them.
func TestOneNodeNeedsOnlyAnAddressOfMongoDB(t *testing.T) {
	t.Parallel()
	l, server := newDevLab(t, "mongo")
	run := func(more ...string) *process {
		p := start(t, launch{
			args: append([]string{"run", "--mongodb-uri", server.URI(), "-o", "json"}, more...),
			env:  []string{"STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0"},
		})
		p.await(nodeRuns)
		return p
	}
	check := start(t, launch{args: []string{"check", "--mongodb-uri", server.URI()}})
	check.awaitIn(check.output, "MongoDB: the user may write into streamer")
	if code := check.wait(); code != 0 {
		t.Errorf("check: exit code %d", code)
	}
	node := run()
	if !node.noted("checkpoints are kept in MongoDB, because nothing names etcd") {
		t.Errorf("it says\n%v", node.notes.all())
	}
	l.insert(1, 2)
	node.awaitIn(node.output, `"documentKey":{"_id":1}`)
	if kept, err := l.client.Database("streamer").ListCollectionNames(t.Context(), bson.D{}); err != nil || len(kept) == 0 {
		t.Errorf("nothing of it is in MongoDB: %v", err)
	}
	node.kill()
	l.insert(2, 3) // what a node without checkpoints would not see
	node = run("--take-over")
	node.awaitIn(node.output, `"documentKey":{"_id":2}`)
	node.kill()
}
