package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/internal/config"
)

// Check reaches what takes dead letters, too: its topic or subject must be there, and the user must
// have the right to write to it.
func TestCheckReachesDeadLetters(t *testing.T) {
	t.Parallel()
	writes := func(topic string) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationWrite, Allow: true}
	}
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "orders", "losses", "dead", "others"),
		kfake.User("SCRAM-SHA-256", "u", "secret", writes("orders"), writes("losses"), writes("dead"), writes("gone")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	nats, err := devbroker.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Stop)
	for name, subject := range map[string]string{"changes": "changes.>", "letters": "dead.>"} {
		_, conn, err := nats.Stream(t.Context(), name, subject)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
	}
	toKafka := "type: kafka, losses: losses, kafka: {topic: orders, brokers: ['" + kafka.ListenAddrs()[0] +
		"'], mechanism: scram-sha-256, username: u, password: secret}, dead_letter: "
	toNATS := "type: nats, losses: changes.losses, nats: {subject: 'changes.{db}', url: '" + nats.URL() + "'}, dead_letter: "
	for _, c := range []struct{ settings, found, fail string }{
		{settings: toKafka + "''", found: "kafka: topic losses exists, topic orders exists"},
		{settings: toKafka + "dead", found: "kafka: topic losses exists, topic orders exists; dead letters: topic dead exists, topic losses exists"},
		{settings: toKafka + "gone", fail: "dead letters: topic gone does not exist: create it, or set kafka.create_topics"},
		{settings: toKafka + "others", fail: "dead letters: the user may not see topic others"},
		{settings: toNATS + "'dead.{coll}'", found: "nats: stream changes has the subjects; dead letters: stream letters, changes has the subjects"},
		{settings: toNATS + "'elsewhere.{coll}'", fail: "dead letters: "},
		{settings: "type: stdout", found: "stdout: nothing to reach"},
		{settings: "type: stdout, dead_letter: '" + filepath.Join(t.TempDir(), "gone", "letters") + "'", fail: "dead letters: open sink's file"},
	} {
		t.Run(c.settings[strings.LastIndex(c.settings, ",")+1:], func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "streamer.yaml")
			if err := os.WriteFile(path, []byte("sinks:\n  - {name: out, "+c.settings+"}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			switch found, err := reachSink(t.Context(), cfg.Sinks[0], config.Cluster{ID: "c", Partitions: 4}); {
			case c.fail == "" && (err != nil || found.Text != c.found):
				t.Errorf("%q, %v", found.Text, err)
			case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)):
				t.Errorf("%q, %v", found.Text, err)
			}
		})
	}
}
