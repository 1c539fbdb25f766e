package kafka_test

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/kafka"
)

// guarded starts a fake cluster with TLS, to which a user may log in by a mechanism, with rights.
func guarded(t *testing.T, mechanism string, rights ...kfake.ACL) kafka.Config {
	t.Helper()
	authority := accesstest.NewAuthority(t)
	pair, err := tls.X509KeyPair(authority.Issue(t, "server", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.AllowAutoTopicCreation(), kfake.SeedTopics(1, "shop.orders", "losses"), kfake.User(strings.ToUpper(mechanism), "streamer", "secret", rights...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return kafka.Config{
		Brokers: cluster.ListenAddrs(), Topic: "{db}.{coll}", Losses: "losses", ID: "streamer.c.out", TLS: authority.Client(t, ""), Mechanism: mechanism, User: "streamer",
		Password: "secret", Namespaces: []change.Namespace{{DB: "shop", Coll: "orders"}},
	}
}

// may allows an operation on what begins with a name.
func may(resource kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) kfake.ACL {
	return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: operation, Allow: true}
}

// writing is the right to write to every topic of the tests.
func writing() []kfake.ACL {
	return []kfake.ACL{may(kmsg.ACLResourceTypeTopic, "shop.", kmsg.ACLOperationWrite), may(kmsg.ACLResourceTypeTopic, "losses", kmsg.ACLOperationWrite)}
}

// reading is the right to read the topics of changes.
func reading() []kfake.ACL {
	return []kfake.ACL{may(kmsg.ACLResourceTypeTopic, "shop.", kmsg.ACLOperationRead)}
}

// keeping is the right to keep positions in transactions.
func keeping() []kfake.ACL {
	return []kfake.ACL{
		may(kmsg.ACLResourceTypeTransactionalId, "streamer.c.out", kmsg.ACLOperationWrite), may(kmsg.ACLResourceTypeGroup, "streamer.c.out", kmsg.ACLOperationRead),
	}
}

// transacting are the rights that docs/sinks.md names for transactions.
func transacting() []kfake.ACL { return slices.Concat(writing(), reading(), keeping()) }

// opened returns the target of a configuration.
func opened(t *testing.T, cfg kafka.Config) sink.Target {
	t.Helper()
	k, err := kafka.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// With each mechanism a user who shows the password over TLS publishes, with a wrong one nobody
// does, and nobody does at a server of another authority.
func TestLoginOverTLS(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			cfg := guarded(t, mechanism, writing()...)
			if err := sink.One(t.Context(), opened(t, cfg), message("orders", 1, 1)); err != nil {
				t.Error(err)
			}
			wrong, stranger := cfg, cfg
			wrong.Password, wrong.Timeout = "guess", time.Second
			stranger.TLS, stranger.Timeout = accesstest.NewAuthority(t).Client(t, ""), time.Second
			for name, cfg := range map[string]kafka.Config{"a wrong password": wrong, "another authority": stranger} {
				k := opened(t, cfg)
				if _, err := k.Check(t.Context()); err == nil {
					t.Errorf("check with %s is fine", name)
				}
				if err := sink.One(t.Context(), k, message("orders", 2, 1)); err == nil {
					t.Errorf("publishing with %s is fine", name)
				}
			}
		})
	}
}

// With the rights that the documentation names, a sink publishes in transactions. Without one of
// them, the check fails where publishing does.
func TestTransactionsNeedTheRightsThatAreNamed(t *testing.T) {
	t.Parallel()
	try := func(t *testing.T, timeout time.Duration, rights []kfake.ACL) (checked, published error) {
		cfg := guarded(t, "scram-sha-256", rights...)
		cfg.Transactional, cfg.Timeout = true, timeout
		k := opened(t, cfg)
		_, checked = k.Check(t.Context())
		return checked, sink.One(t.Context(), k, message("orders", 1, 1))
	}
	for without := range len(transacting()) + 1 {
		t.Run(fmt.Sprint(without), func(t *testing.T) {
			t.Parallel()
			rights := transacting()
			if without == len(rights) {
				if checked, published := try(t, time.Minute, rights); checked != nil || published != nil {
					t.Errorf("checked: %v, published: %v", checked, published)
				}
				return
			}
			losses := rights[without].Name == "losses" // not published to here
			rights = slices.Delete(rights, without, without+1)
			if checked, published := try(t, 5*time.Second, rights); checked == nil || published == nil && !losses {
				t.Errorf("without %+v: checked: %v, published: %v", transacting()[without], checked, published)
			}
		})
	}
}

// Check says what exists, what may be created, and what rights are missing.
func TestCheckSaysWhatIsThereAndWhatMayBeDone(t *testing.T) {
	t.Parallel()
	const topic = kmsg.ACLResourceTypeTopic
	transactional := func(c *kafka.Config) { c.Transactional = true }
	missing := func(c *kafka.Config) {
		c.Namespaces = append(c.Namespaces, change.Namespace{DB: "shop", Coll: "customers"})
	}
	created := func(c *kafka.Config) { missing(c); c.Create = true }
	for name, c := range map[string]struct {
		rights      []kfake.ACL
		adjust      func(*kafka.Config)
		found, fail string
	}{
		"topics exist":           {rights: writing(), found: "topic losses exists, topic shop.orders exists"},
		"a topic is not visible": {rights: writing()[1:], fail: "may not see topic shop.orders: it needs the operations Describe and Write"},
		"a topic may be read only": {
			rights: []kfake.ACL{may(topic, "shop.", kmsg.ACLOperationRead), writing()[1]}, fail: "may not write to topic shop.orders: it needs the operation Write",
		},
		"a topic is missing": {rights: writing(), adjust: missing, fail: "topic shop.customers does not exist: create it, or set kafka.create_topics"},
		"a topic must not be created": {
			rights: writing(), adjust: created, fail: "topic shop.customers does not exist, and the user may not create it: it needs the operation Create",
		},
		"a topic may be created": {
			rights: append(writing(), may(topic, "shop.", kmsg.ACLOperationCreate)), adjust: created,
			found: "topic losses exists, topic shop.customers may be created, topic shop.orders exists",
		},
		"transactions are not allowed": {rights: append(writing(), reading()...), adjust: transactional, fail: "for transactional ids that begin with streamer.c.out"},
		"positions must not be kept": {
			rights: slices.Concat(writing(), reading(), keeping()[:1]), adjust: transactional, fail: "for groups that begin with streamer.c.out",
		},
		"positions must not be kept for a topic": {
			rights: append(writing(), keeping()...), adjust: transactional, fail: "may not read topic shop.orders: kafka.transactional needs the operation Read",
		},
		"transactions work": {
			rights: transacting(), adjust: transactional, found: "topic losses exists, topic shop.orders exists, transactions work",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := guarded(t, "scram-sha-256", c.rights...)
			if c.adjust != nil {
				c.adjust(&cfg)
			}
			found, err := opened(t, cfg).Check(t.Context())
			switch {
			case c.fail == "" && (err != nil || found != c.found):
				t.Errorf("%q, %v", found, err)
			case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)):
				t.Errorf("%q, %v", found, err)
			}
		})
	}
}
