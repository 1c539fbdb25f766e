package devmongo_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/gateway/access/accesstest"
)

// login connects as somebody, with more options of the connection string.
func login(t *testing.T, s *devmongo.Server, user, password, more string) *mongo.Client {
	t.Helper()
	uri := fmt.Sprintf("mongodb://%s:%s@%s/?replicaSet=rs0%s", url.QueryEscape(user), url.QueryEscape(password), s.Addr(), more)
	return connectWith(t, options.Client().ApplyURI(uri))
}

func connectWith(t *testing.T, o *options.ClientOptions) *mongo.Client {
	t.Helper()
	if o.ServerSelectionTimeout == nil {
		o.SetServerSelectionTimeout(time.Minute)
	}
	c, err := mongo.Connect(o.SetRetryReads(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(context.Background()) })
	return c
}

func find(t *testing.T, c *mongo.Client, db, coll string) int {
	t.Helper()
	_, err := c.Database(db).Collection(coll).Find(t.Context(), bson.D{})
	return code(err)
}

func TestUsersAuthenticate(t *testing.T) {
	t.Parallel()
	const password = "p@ss/wörd:%"
	s := devmongotest.Start(t, devmongo.Config{Users: []devmongo.User{
		{Name: "ann", Password: password, Privileges: devmongo.Read("")}, {Name: "bob", DB: "shop", Password: "b", Privileges: devmongo.Read("shop")},
	}})
	for _, c := range []struct {
		name, user, password, more string
		want                       int
	}{
		{"negotiated", "ann", password, "", 0},
		{"SHA-256", "ann", password, "&authMechanism=SCRAM-SHA-256", 0},
		{"SHA-1", "ann", password, "&authMechanism=SCRAM-SHA-1", 0},
		{"wrong password", "ann", "x", "", 18},
		{"wrong password, SHA-1", "ann", "x", "&authMechanism=SCRAM-SHA-1", 18},
		{"unknown user", "eve", "x", "", 18},
		{"wrong database", "bob", "b", "", 18},
		{"database of the user", "bob", "b", "&authSource=shop", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := find(t, login(t, s, c.user, c.password, c.more), "shop", "orders"); got != c.want {
				t.Errorf("%d", got)
			}
		})
	}
	stranger := connectWith(t, options.Client().ApplyURI(s.URI()))
	if got := find(t, stranger, "shop", "orders"); got != 13 {
		t.Errorf("without a user: %d", got)
	}
	if err := stranger.Database("admin").RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Err(); err != nil {
		t.Error(err)
	}
}

func TestPrivilegesCoverWhatTheyName(t *testing.T) {
	t.Parallel()
	only := func(db, coll string, actions ...string) []devmongo.Privilege {
		return []devmongo.Privilege{{DB: db, Coll: coll, Actions: actions}}
	}
	s := devmongotest.Start(t, devmongo.Config{Users: []devmongo.User{{Name: "root", Password: "p", Privileges: devmongo.Root()}}})
	root := login(t, s, "root", "p", "")
	for _, ns := range [][2]string{{"shop", "orders"}, {"shop", "carts"}, {"crm", "leads"}} {
		if _, err := root.Database(ns[0]).Collection(ns[1]).InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	watch := func(c *mongo.Client, db, coll string) error {
		stream, err := (*mongo.ChangeStream)(nil), error(nil)
		switch {
		case db == "":
			stream, err = c.Watch(t.Context(), mongo.Pipeline{})
		case coll == "":
			stream, err = c.Database(db).Watch(t.Context(), mongo.Pipeline{})
		default:
			stream, err = c.Database(db).Collection(coll).Watch(t.Context(), mongo.Pipeline{})
		}
		if err == nil {
			_ = stream.Close(t.Context())
		}
		return err
	}
	attempts := []struct {
		name string
		try  func(c *mongo.Client) error
	}{
		{"find orders", func(c *mongo.Client) error {
			return c.Database("shop").Collection("orders").FindOne(t.Context(), bson.D{}).Err()
		}},
		{"find carts", func(c *mongo.Client) error {
			return c.Database("shop").Collection("carts").FindOne(t.Context(), bson.D{}).Err()
		}},
		{"find leads", func(c *mongo.Client) error {
			return c.Database("crm").Collection("leads").FindOne(t.Context(), bson.D{}).Err()
		}},
		{"find oplog", func(c *mongo.Client) error {
			return c.Database("local").Collection("oplog.rs").FindOne(t.Context(), bson.D{}).Err()
		}},
		{"watch all", func(c *mongo.Client) error { return watch(c, "", "") }},
		{"watch shop", func(c *mongo.Client) error { return watch(c, "shop", "") }},
		{"watch orders", func(c *mongo.Client) error { return watch(c, "shop", "orders") }},
		{"insert orders", func(c *mongo.Client) error {
			_, err := c.Database("shop").Collection("orders").InsertOne(t.Context(), bson.D{{Key: "v", Value: 1}})
			return err
		}},
		{"list shop", func(c *mongo.Client) error {
			_, err := c.Database("shop").ListCollectionNames(t.Context(), bson.D{})
			return err
		}},
		{"status", func(c *mongo.Client) error {
			return c.Database("admin").RunCommand(t.Context(), bson.D{{Key: "serverStatus", Value: 1}}).Err()
		}},
	}
	for _, c := range []struct {
		name       string
		privileges []devmongo.Privilege
		may        map[string]bool
	}{
		{"nothing", nil, nil},
		{"readAnyDatabase", devmongo.Read(""), map[string]bool{
			"find orders": true, "find carts": true, "find leads": true, "watch all": true, "watch shop": true, "watch orders": true, "list shop": true,
		}},
		{"read of shop", devmongo.Read("shop"), map[string]bool{"find orders": true, "find carts": true, "watch shop": true, "watch orders": true, "list shop": true}},
		{"readWrite of shop and read of local", append(devmongo.ReadWrite("shop"), devmongo.Read("local")...), map[string]bool{
			"find orders": true, "find carts": true, "watch shop": true, "watch orders": true, "list shop": true, "insert orders": true, "find oplog": true,
		}},
		{"one collection", only("shop", "orders", "find", "changeStream"), map[string]bool{"find orders": true, "watch orders": true}},
		{"find only", only("", "", "find"), map[string]bool{"find orders": true, "find carts": true, "find leads": true}},
		{"a name in every database", only("", "leads", "find"), map[string]bool{"find leads": true}},
		{"clusterMonitor", devmongo.ClusterMonitor(), map[string]bool{"status": true}},
		{"root", devmongo.Root(), map[string]bool{
			"find orders": true, "find carts": true, "find leads": true, "find oplog": true, "watch all": true, "watch shop": true, "watch orders": true, "insert orders": true,
			"list shop": true, "status": true,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := s.SetUser(devmongo.User{Name: "u", Password: "p", Privileges: c.privileges}); err != nil {
				t.Fatal(err)
			}
			user := login(t, s, "u", "p", "")
			for _, a := range attempts {
				want := 13
				if c.may[a.name] {
					want = 0
				}
				if got := code(a.try(user)); got != want {
					t.Errorf("%s: %d, want %d", a.name, got, want)
				}
			}
		})
	}
}

// What changes about a user concerns connections that are open as it does with MongoDB: a new
// password not at all, privileges with the next command, and the end of the user at once.
func TestUsersChangeUnderOpenConnections(t *testing.T) {
	t.Parallel()
	ann := devmongo.User{Name: "ann", Password: "first", Privileges: devmongo.Read("")}
	s := devmongotest.Start(t, devmongo.Config{Users: []devmongo.User{ann}})
	c := login(t, s, "ann", "first", "&maxPoolSize=1")
	stream, err := c.Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	set := func(u devmongo.User) {
		t.Helper()
		if err := s.SetUser(u); err != nil {
			t.Fatal(err)
		}
	}
	ann.Password = "second"
	set(ann)
	if got := find(t, c, "shop", "orders"); got != 0 {
		t.Errorf("an open connection after a change of the password: %d", got)
	}
	if got := find(t, login(t, s, "ann", "first", ""), "shop", "orders"); got != 18 {
		t.Errorf("the old password: %d", got)
	}
	if got := find(t, login(t, s, "ann", "second", ""), "shop", "orders"); got != 0 {
		t.Errorf("the new password: %d", got)
	}
	ann.Privileges = devmongo.Read("shop")
	set(ann)
	stream.TryNext(t.Context()) // the empty reply of the opening
	if stream.TryNext(t.Context()); code(stream.Err()) != 13 {
		t.Errorf("the stream after its right has gone: %v", stream.Err())
	}
	if got := find(t, c, "shop", "orders"); got != 0 {
		t.Errorf("what is still allowed: %d", got)
	}
	s.RemoveUser("admin", "ann")
	if got := find(t, c, "shop", "orders"); got != 13 {
		t.Errorf("after the user has gone: %d", got)
	}
	set(ann)
	if got := find(t, c, "shop", "orders"); got != 13 {
		t.Errorf("another user of the same name: %d", got)
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	authority, other := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	server := func(valid time.Duration) *tls.Config {
		pair, err := tls.X509KeyPair(authority.Issue(t, "server", valid))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: authority.Client(t, "").RootCAs}
	}
	s := devmongotest.Start(t, devmongo.Config{TLS: server(time.Hour), Users: []devmongo.User{
		{Name: "CN=node", DB: devmongo.External, Privileges: devmongo.Read("")}, {Name: "ann", Password: "p", Privileges: devmongo.Read("")},
	}})
	dir := t.TempDir()
	keyFile := func(a *accesstest.Authority, name string, valid time.Duration) string {
		cert, key := a.Issue(t, name, valid)
		path := filepath.Join(dir, fmt.Sprint(name, valid, a == other))
		if err := os.WriteFile(path, append(cert, key...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	x509 := func(file, more string) *mongo.Client {
		return connectWith(t, options.Client().ApplyURI(s.URI()+"&authMechanism=MONGODB-X509&tlsCAFile="+authority.CAFile(t)+"&tlsCertificateKeyFile="+file+more))
	}
	if got := find(t, x509(keyFile(authority, "node", time.Hour), ""), "shop", "orders"); got != 0 {
		t.Errorf("a user with a certificate: %d", got)
	}
	if got := find(t, x509(keyFile(authority, "eve", time.Hour), ""), "shop", "orders"); got != 18 {
		t.Errorf("a certificate that is nobody's: %d", got)
	}
	if got := find(t, login(t, s, "ann", "p", "&tlsCAFile="+authority.CAFile(t)), "shop", "orders"); got != 0 {
		t.Errorf("a user with a password: %d", got)
	}
	const soon = "&serverSelectionTimeoutMS=500" // the driver looks for a server as long
	for name, c := range map[string]*mongo.Client{
		"expired":                  x509(keyFile(authority, "node", -time.Minute), soon),
		"of another authority":     x509(keyFile(other, "node", time.Hour), soon),
		"plaintext":                login(t, s, "ann", "p", soon),
		"the authority is unknown": login(t, s, "ann", "p", soon+"&tlsCAFile="+other.CAFile(t)),
	} {
		if got := find(t, c, "shop", "orders"); got != -1 {
			t.Errorf("%s: %d", name, got)
		}
	}
	s.SetTLS(server(-time.Minute))
	_, err := login(t, s, "ann", "p", soon+"&tlsCAFile="+authority.CAFile(t)).ListDatabaseNames(t.Context(), bson.D{})
	if err == nil {
		t.Error("the server's certificate has expired, and is accepted")
	}
}
