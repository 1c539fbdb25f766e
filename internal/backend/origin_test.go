package backend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
	"github.com/mongostream/streamer/notice"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A site is a MongoDB and etcds, on which nodes of one cluster are configured in different ways.
type site struct {
	*testing.T

	uri, database string
	mongo         *mongodb.Client
	etcds         []*clientv3.Client // all set up alike: one cluster id
	endpoints     []string
	prefix        string
}

func newSite(t *testing.T, etcds int) *site {
	t.Helper()
	s := &site{T: t, uri: devmongotest.URI(t), prefix: "/" + strings.ToLower(rand.Text())}
	s.mongo = mongodbtest.Dial(t, s.uri)
	s.database = mongodbtest.Database(t, s.mongo)
	for range etcds {
		endpoints := etcdtest.Endpoints(t)
		client := etcdtest.Client(t, endpoints)
		t.Cleanup(func() { _ = client.Close() })
		s.etcds, s.endpoints = append(s.etcds, client), append(s.endpoints, endpoints[0])
	}
	return s
}

// A configuration is how a node is configured.
type configuration struct {
	backend string
	nodes   int
	etcd    int    // which one
	prefix  string // below the site's
}

func (c configuration) String() string {
	return fmt.Sprintf("%s, %d nodes, etcd %d%s", c.backend, c.nodes, c.etcd, c.prefix)
}

// at opens the connections of a node, or of an operator, that is configured so.
func (s *site) at(as configuration, open func(*Conn, context.Context) error) (*Conn, error) {
	s.Helper()
	cfg, err := config.Load("", []string{
		"STREAMER_MONGODB_URI=" + s.uri, "STREAMER_RELIABILITY_CHECKPOINT_DATABASE=" + s.database, "STREAMER_ETCD_ENDPOINTS=" + s.endpoints[as.etcd],
		"STREAMER_ETCD_PREFIX=" + s.prefix + as.prefix, "STREAMER_CLUSTER_EXPECTED_NODES=" + fmt.Sprint(as.nodes), "STREAMER_CLUSTER_PARTITIONS=4",
		"STREAMER_RELIABILITY_CHECKPOINT_BACKEND=" + as.backend, "STREAMER_ETCD_DIAL_TIMEOUT=30s", "STREAMER_CLUSTER_ID=c",
	})
	if err != nil {
		s.Fatal(err)
	}
	c := New(cfg, "test", nil)
	s.Cleanup(c.Close)
	return c, open(c, s.Context())
}

// start does what a node does about the origin when it starts.
func (s *site) start(as configuration) (checkpoint.Origin, error) {
	s.Helper()
	c, err := s.at(as, (*Conn).OpenStore)
	if err != nil {
		s.Fatal(err)
	}
	return c.EnsureOrigin(s.Context(), "replicaset/rs0", s.first)
}

// first makes the origin of a first start.
func (s *site) first(context.Context) (checkpoint.Origin, error) {
	return checkpoint.Origin{
		Cluster: rand.Text(), Incarnation: 1, Partitions: 4, Source: "replicaset/rs0", Start: change.Timestamp{T: 1_700_000_000, I: 1}, At: time.Now(), By: "n",
	}, nil
}

// Nodes that all are the first agree, whichever of them writes the origin, and whatever each has
// seen of it before.
func TestNodesThatAreTheFirstAgree(t *testing.T) {
	const rounds, nodes = 20, 8
	for _, backend := range []string{checkpoint.BackendMongo, checkpoint.BackendEtcd} {
		s := newSite(t, 1)
		for round := range rounds {
			var places []*Conn
			for range nodes {
				c, err := s.at(configuration{backend: backend, nodes: nodes, prefix: fmt.Sprintf("/%d", round)}, (*Conn).OpenStore)
				if err != nil {
					t.Fatal(err)
				}
				places = append(places, c)
			}
			origins, errs := make([]checkpoint.Origin, nodes), make([]error, nodes)
			var wg sync.WaitGroup
			for i, c := range places {
				wg.Go(func() { origins[i], errs[i] = c.EnsureOrigin(t.Context(), "replicaset/rs0", s.first) })
			}
			wg.Wait()
			for i, err := range errs {
				if err != nil || origins[i].Cluster != origins[0].Cluster || origins[i].Backend != origins[0].Backend {
					t.Fatalf("%s, round %d, node %d: %+v, %v", backend, round, i, origins[i], err)
				}
			}
			s.forget()
		}
	}
}

// forget takes the origin in MongoDB away.
func (s *site) forget() {
	s.Helper()
	if err := s.mongo.Driver().Database(s.database).Collection("c.cluster").Drop(s.Context()); err != nil {
		s.Fatal(err)
	}
}

func (s *site) mustStart(c configuration) checkpoint.Origin {
	s.Helper()
	o, err := s.start(c)
	if err != nil {
		s.Fatalf("%s: %v", c, err)
	}
	return o
}

// everything returns what the stores keep.
func (s *site) everything() map[string]string {
	s.Helper()
	all := map[string]string{}
	for i, etcd := range s.etcds {
		resp, err := etcd.Get(s.Context(), s.prefix, clientv3.WithPrefix())
		if err != nil {
			s.Fatal(err)
		}
		for _, kv := range resp.Kvs {
			all[fmt.Sprint(i, string(kv.Key))] = string(kv.Value)
		}
	}
	cursor, err := s.mongo.Driver().Database(s.database).Collection("c.cluster").Find(s.Context(), bson.D{})
	if err != nil {
		s.Fatal(err)
	}
	var documents []bson.Raw
	if err := cursor.All(s.Context(), &documents); err != nil {
		s.Fatal(err)
	}
	for _, d := range documents {
		all[d.Lookup("_id").String()] = d.String()
	}
	return all
}

// asBefore takes away what versions before did not write: the backends of origins.
func (s *site) asBefore() {
	s.Helper()
	for _, etcd := range s.etcds {
		for key := range s.everything() {
			if strings.HasSuffix(key, "/backend") {
				if _, err := etcd.Delete(s.Context(), key[1:]); err != nil {
					s.Fatal(err)
				}
			}
		}
	}
	_, err := s.mongo.Driver().Database(s.database).Collection("c.cluster").UpdateMany(s.Context(), bson.D{}, bson.D{{Key: "$unset", Value: bson.D{{Key: "backend", Value: ""}}}})
	if err != nil {
		s.Fatal(err)
	}
}

// A node that keeps checkpoints elsewhere than its cluster does would begin every partition at the
// origin. It is refused, and writes nothing; so is a command. Of origins that were written before
// backends stood in them it is the same, as far as the other store tells.
func TestAnotherBackendIsRefused(t *testing.T) {
	t.Parallel()
	ways := []configuration{{"etcd", 1, 0, ""}, {"etcd", 3, 0, ""}, {"mongo", 1, 0, ""}, {"mongo", 3, 0, ""}}
	for _, before := range []bool{false, true} {
		for _, stands := range ways {
			for _, comes := range ways {
				t.Run(fmt.Sprintf("%s, then %s, before: %t", stands, comes, before), func(t *testing.T) {
					t.Parallel()
					s := newSite(t, 1)
					s.mustStart(stands)
					if before {
						s.asBefore()
					}
					as := s.everything()
					o, err := s.start(comes)
					_, commanded := s.at(comes, func(c *Conn, ctx context.Context) error { return c.OpenForOperator(ctx, true) })
					if stands.backend == comes.backend {
						if err != nil || commanded != nil || o.Backend.Store != comes.backend {
							t.Errorf("%v, %v, %+v", err, commanded, o.Backend)
						}
						return
					}
					if fault.Of(err) != fault.ClusterBackend || fault.Of(commanded) != fault.ClusterBackend {
						t.Errorf("the node: %v; the command: %v", err, commanded)
					}
					if now := s.everything(); !maps.Equal(as, now) {
						t.Errorf("%v became %v", as, now)
					}
				})
			}
		}
	}
}

// Nodes of two clusters that have checkpoints in MongoDB in common, and share them through
// different etcds or below different prefixes, would depose each other for ever. The first ones are
// served. One etcd is like another: both have one cluster id.
func TestAnotherEtcdIsRefused(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]configuration{"another etcd": {"mongo", 3, 1, ""}, "another prefix": {"mongo", 3, 0, "/x"}} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, before: %t", name, before), func(t *testing.T) {
				t.Parallel()
				s, ours := newSite(t, 2), configuration{"mongo", 3, 0, ""}
				first := s.mustStart(ours)
				if first.Backend.ID == "" || first.Backend.Etcd == "" || first.Backend.Prefix != s.prefix+"/" {
					t.Errorf("%+v", first.Backend)
				}
				if before {
					s.asBefore()
					s.mustStart(ours)
				}
				as := s.everything()
				for range 2 {
					if _, err := s.start(other); fault.Of(err) != fault.ClusterOrigin {
						t.Errorf("%v", err)
					}
				}
				if now := s.everything(); !maps.Equal(as, now) {
					t.Errorf("%v became %v", as, now)
				}
				s.mustStart(ours)
			})
		}
	}
}

// Where both come at once, to an origin that was written before, or to none, one of them is served.
func TestOfNodesAtTwoEtcdsOneIsServed(t *testing.T) {
	t.Parallel()
	for round := range 6 {
		s := newSite(t, 2)
		if round%2 == 1 {
			s.mustStart(configuration{"mongo", 1, 0, ""}) // without etcd, so that none is known
			s.asBefore()
		}
		ways := []configuration{{"mongo", 3, 0, ""}, {"mongo", 3, 1, ""}}
		served := make([]bool, len(ways))
		var both sync.WaitGroup
		for i, way := range ways {
			c, err := s.at(way, (*Conn).OpenStore)
			if err != nil {
				t.Fatal(err)
			}
			both.Go(func() {
				_, err := c.EnsureOrigin(t.Context(), "replicaset/rs0", s.first)
				if served[i] = err == nil; !served[i] && fault.Of(err) != fault.ClusterOrigin {
					t.Errorf("%v", err)
				}
			})
		}
		both.Wait()
		if served[0] == served[1] {
			t.Errorf("round %d: %v", round, served)
		}
		for i, way := range ways {
			if _, err := s.start(way); (err == nil) != served[i] {
				t.Errorf("round %d, %s: %v, but first it was served: %t", round, way, err, served[i])
			}
		}
	}
}

// Nodes of a version that knows of no backend run while the first one that does completes the
// origin: their memberships last.
func TestCompletingAnOriginDisturbsNobody(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"etcd", "mongo"} {
		s, several := newSite(t, 1), configuration{backend, 3, 0, ""}
		s.mustStart(several)
		s.asBefore()
		c, err := s.at(several, (*Conn).OpenStore)
		if err != nil {
			t.Fatal(err)
		}
		older := cluster.Heartbeat{Node: "older", Process: "p", Kind: cluster.KindNode, Status: cluster.StatusHealthy}
		m, err := c.Members().Join(t.Context(), older, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Claim(t.Context(), []change.Partition{0, 1}); err != nil {
			t.Fatal(err)
		}
		if o := s.mustStart(several); o.Backend.Store != backend || o.Backend.ID == "" {
			t.Errorf("%+v", o.Backend)
		}
		if err := m.Beat(t.Context(), older); err != nil {
			t.Errorf("%s: the heartbeat of an older node: %v", backend, err)
		}
		if owners, err := m.Claim(t.Context(), []change.Partition{2}); err != nil || owners[0].Process != "p" {
			t.Errorf("%s: its claim: %v, %v", backend, owners, err)
		}
	}
}

// A deployment is what adopting asks of MongoDB.
type deployment struct{ admin.Source }

func (deployment) Identity(context.Context) (string, error) { return "replicaset/rs0", nil }
func (deployment) Now(context.Context) (change.Timestamp, error) {
	return change.Timestamp{T: 1_800_000_000, I: 1}, nil
}
func (deployment) FirstEntry(context.Context) (change.Timestamp, bool, error) {
	return change.Timestamp{}, false, nil
}

// An etcd that was replaced, or moved to another prefix, is the cluster's once an operator has
// adopted it; the one before is refused then. Adopting does not need to be told that nodes share
// the partitions.
func TestAdoptingTakesAnotherEtcd(t *testing.T) {
	t.Parallel()
	was := configuration{"mongo", 3, 0, ""}
	for name, is := range map[string]configuration{"another etcd": {"mongo", 3, 1, ""}, "another prefix": {"mongo", 3, 0, "/x"}} {
		for _, nodes := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, the operator says %d nodes", name, nodes), func(t *testing.T) {
				t.Parallel()
				s := newSite(t, 2)
				s.mustStart(was)
				c, err := s.at(was, (*Conn).OpenStore)
				if err != nil {
					t.Fatal(err)
				}
				m, err := c.Members().Join(t.Context(), cluster.Heartbeat{Node: "n", Process: "p"}, time.Minute)
				if err == nil {
					err = m.Leave(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.start(is); fault.Of(err) != fault.ClusterOrigin {
					t.Errorf("before: %v", err)
				}
				operator := is
				operator.nodes = nodes
				c, err = s.at(operator, func(c *Conn, ctx context.Context) error { return c.OpenForOperator(ctx, true) })
				if fault.Of(err) != fault.ClusterOrigin {
					t.Fatal(err)
				}
				plan, err := admin.PlanAdopt(t.Context(), c.Store, deployment{}, change.Timestamp{}, c.Describe())
				if err != nil {
					t.Fatal(err)
				}
				if !plan.NewEtcd && name == "another prefix" { // etcds that were set up alike look the same until they are asked
					t.Errorf("%+v", plan)
				}
				if _, err := plan.Apply(t.Context(), c.Store, "op"); err != nil {
					t.Fatal(err)
				}
				if o := s.mustStart(is); o.Incarnation != 2 {
					t.Errorf("%+v", o)
				}
				if _, err := s.start(was); fault.Of(err) != fault.ClusterOrigin {
					t.Errorf("afterwards, at the etcd before: %v", err)
				}
			})
		}
	}
}

// An operator's rewind is told to the nodes through the history that they have in common, whatever
// the operator's configuration says of their number; each announcement is one of its own.
func TestNodesHearOfAnOperatorsNotice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		node, operator configuration
		announced      bool
	}{
		{configuration{"etcd", 1, 0, ""}, configuration{"etcd", 1, 0, ""}, true},
		{configuration{"mongo", 3, 0, ""}, configuration{"mongo", 1, 0, ""}, true},
		{configuration{"mongo", 1, 0, ""}, configuration{"mongo", 1, 0, ""}, false},
	} {
		s := newSite(t, 1)
		s.mustStart(c.node)
		n, err := s.at(c.node, (*Conn).OpenStore)
		if err != nil {
			t.Fatal(err)
		}
		if c.node.backend == "mongo" && c.node.nodes > 1 {
			m, err := n.Members().Join(t.Context(), cluster.Heartbeat{Node: "n", Process: "p"}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		operator, err := s.at(c.operator, func(c *Conn, ctx context.Context) error { return c.OpenForOperator(ctx, false) })
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			told := notice.Notice{Channel: notice.Resync, Kind: notice.KindRewound, Level: notice.Warning, Text: "back", Fields: map[string]any{"subscriber": "a", "generation": 1}}
			if announced, err := operator.Announce(t.Context(), told); err != nil || announced != c.announced {
				t.Errorf("%s: %t, %v", c.operator, announced, err)
			}
		}
		if !c.announced {
			continue
		}
		client, err := n.Etcd(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		heard, _, err := etcd.NewNoticeStore(client, etcd.NoticeConfig{Process: "p"}).Read(t.Context(), 0)
		if err != nil || len(heard) != 2 || heard[1].Kind != notice.KindRewound || heard[1].Fields["subscriber"] != "a" {
			t.Errorf("%s: %+v, %v", c.node, heard, err)
		}
	}
}

// Checkpoints that an earlier version carried from MongoDB to etcd left an origin in both. Neither
// says which counts: an operator does, by adopting.
func TestAdoptingSaysWhichOfTwoOriginsCounts(t *testing.T) {
	t.Parallel()
	s, is := newSite(t, 1), configuration{"etcd", 1, 0, ""}
	s.mustStart(configuration{"mongo", 3, 0, ""})
	s.asBefore()
	if _, err := s.start(is); fault.Of(err) != fault.ClusterBackend {
		t.Errorf("before: %v", err)
	}
	c, err := s.at(is, func(c *Conn, ctx context.Context) error { return c.OpenForOperator(ctx, true) })
	if fault.Of(err) != fault.ClusterBackend {
		t.Fatal(err)
	}
	plan, err := admin.PlanAdopt(t.Context(), c.Store, deployment{}, change.Timestamp{}, c.Describe())
	if err == nil {
		_, err = plan.Apply(t.Context(), c.Store, "op")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.mustStart(is)
	if _, err := s.start(configuration{"mongo", 3, 0, ""}); fault.Of(err) != fault.ClusterOrigin && fault.Of(err) != fault.ClusterBackend {
		t.Errorf("afterwards, for MongoDB: %v", err)
	}
	c, err = s.at(configuration{"mongo", 1, 0, ""}, (*Conn).OpenStore)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Store.Complete(t.Context(), checkpoint.Backend{Store: checkpoint.BackendEtcd}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.PlanAdopt(t.Context(), c.Store, deployment{}, change.Timestamp{}, c.Describe()); fault.Of(err) != fault.ClusterBackend {
		t.Errorf("adopted where the checkpoints are not: %v", err)
	}
}

// What cannot be known is not taken for nothing: checkpoints may be in an etcd that is configured
// and does not answer.
func TestFirstStartNextToAnEtcdThatIsAway(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.endpoints[0] = "127.0.0.1:1"
	c, err := s.at(configuration{"mongo", 1, 0, ""}, (*Conn).OpenStore)
	if err != nil {
		t.Fatal(err)
	}
	c.Config.Etcd.DialTimeout = 100 * time.Millisecond
	if _, err := c.EnsureOrigin(t.Context(), "replicaset/rs0", s.first); fault.Of(err) != fault.ClusterBackend || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v", err)
	}
	if _, err := c.Store.Origin(t.Context()); !errors.Is(err, checkpoint.ErrNoOrigin) {
		t.Errorf("%v", err)
	}
}

// Where etcd.endpoints is empty, as in the chart's values-demo.yaml, there is no etcd that could
// have checkpoints.
func TestFirstStartWithoutAnyEtcd(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	s.endpoints = []string{"127.0.0.1:1"}
	c, err := s.at(configuration{"mongo", 1, 0, ""}, (*Conn).OpenStore)
	if err != nil {
		t.Fatal(err)
	}
	c.Config.Etcd.Endpoints = nil
	if err := c.CheckVacant(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.EnsureOrigin(t.Context(), "replicaset/rs0", s.first); err != nil {
		t.Error(err)
	}
}
