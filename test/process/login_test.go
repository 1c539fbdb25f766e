package process

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access/accesstest"
)

// as returns the connection string of a user.
func as(s *devmongo.Server, name, password string) string {
	return strings.Replace(s.URI(), "mongodb://", "mongodb://"+name+":"+password+"@", 1)
}

// newLockedLab makes a lab on a MongoDB that lets in only its users: root, whom the test is, and
// node.
func newLockedLab(t *testing.T, backend string, privileges []devmongo.Privilege) (*lab, *devmongo.Server) {
	t.Helper()
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0", Users: []devmongo.User{
		{Name: "root", Password: "root", Privileges: devmongo.Root()}, {Name: "node", Password: "first", Privileges: privileges},
	}})
	return labOn(t, backend, as(server, "root", "root")).with("STREAMER_MONGODB_URI=" + as(server, "node", "first")), server
}

// What keeps a user from what a node does is found by streamer check, with its code and what to do,
// and by the start, with the same.
func TestCheckFindsWhatAUserMayNotDo(t *testing.T) {
	t.Parallel()
	least := append(devmongo.Read(""), devmongo.Read("local")...)
	const skipped = "version skip, read_log skip, resume skip, namespaces skip, split skip, images skip, oplog skip, majority skip, shards skip, clock skip, connections skip"
	const young = ", compaction warn STRM-ETCD-COMPACTION"
	for _, c := range []struct {
		name, backend string
		privileges    []devmongo.Privilege
		grant         func(database string) []devmongo.Privilege // on the checkpoints' database
		uri           func(*devmongo.Server) string
		want          string
		code          fault.Code // of a node that starts, empty where it does
	}{
		{"the rights that are documented", "etcd", least, nil, nil, strings.TrimPrefix(young, ", "), ""},
		{"and where checkpoints are in MongoDB", "mongo", least, devmongo.ReadWrite, nil, "", ""},
		{"a wrong password", "etcd", least, nil, func(s *devmongo.Server) string { return as(s, "node", "wrong") },
			"mongodb fail STRM-MONGODB-CREDENTIALS, " + skipped + young + ", checkpoints skip", fault.MongoCredentials},
		{"an unknown user", "etcd", least, nil, func(s *devmongo.Server) string { return as(s, "nobody", "first") },
			"mongodb fail STRM-MONGODB-CREDENTIALS, " + skipped + young + ", checkpoints skip", fault.MongoCredentials},
		{"the database of another user", "etcd", least, nil, func(s *devmongo.Server) string { return as(s, "node", "first") + "&authSource=shop" },
			"mongodb fail STRM-MONGODB-CREDENTIALS, " + skipped + young + ", checkpoints skip", fault.MongoCredentials},
		{"no right to watch", "etcd", []devmongo.Privilege{{Actions: []string{"find"}}}, nil, nil,
			"read_log fail STRM-MONGODB-UNAUTHORIZED, resume skip, split skip, oplog warn STRM-LOG-HIDDEN" + young, fault.MongoUnauthorized},
		{"no right to read the oplog", "etcd", devmongo.Read(""), nil, nil, "oplog warn STRM-LOG-HIDDEN" + young, ""},
		{"no right to write checkpoints", "mongo", least, devmongo.Read, nil,
			"checkpoint_store fail STRM-MONGODB-UNAUTHORIZED, checkpoints skip", fault.MongoUnauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, server := newLockedLab(t, c.backend, c.privileges)
			if c.grant != nil {
				if err := server.SetUser(devmongo.User{Name: "node", Password: "first", Privileges: append(c.privileges, c.grant(l.store.(*mongoStore).database.Name())...)}); err != nil {
					t.Fatal(err)
				}
			}
			if c.uri != nil {
				l = l.with("STREAMER_MONGODB_URI=" + c.uri(server))
			}
			_, found := l.check()
			if got := found.notOK(); got != c.want {
				t.Errorf("found %s\n want %s\n%+v", got, c.want, found)
			}
			n := l.node()
			if c.code != "" {
				n.refused(c.code)
				return
			}
			n.await(nodeRuns)
			l.insert(0, 10)
			until(t, "changes arrive", func() bool { return len(n.output.all()) >= 10 })
			n.signal(syscall.SIGTERM)
			if exit := n.wait(); exit != 0 {
				t.Errorf("exit code %d", exit)
			}
		})
	}
}

// Certificates that one side does not take are found within seconds, by streamer check and by the
// start, with their code; a user with one is let in.
func TestCheckFindsCertificatesThatAreNotTaken(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t)
	pair, err := tls.X509KeyPair(authority.Issue(t, "server", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	server := devmongotest.Start(t, devmongo.Config{
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: authority.Client(t, "").RootCAs},
		Users: []devmongo.User{
			{Name: "root", Password: "root", Privileges: devmongo.Root()},
			{Name: "CN=node", DB: devmongo.External, Privileges: append(devmongo.Read(""), devmongo.Read("local")...)},
		},
	})
	l := labOn(t, "etcd", as(server, "root", "root")+"&tls=true&tlsInsecure=true")
	with := func(valid time.Duration) *lab {
		cert, key := authority.Issue(t, "node", valid)
		return l.with("STREAMER_MONGODB_URI=" + server.URI() + "&authMechanism=MONGODB-X509&tlsCAFile=" + authority.CAFile(t) +
			"&tlsCertificateKeyFile=" + put(t, "node.pem", append(cert, key...)))
	}
	good := with(time.Hour).node()
	good.await(nodeRuns)
	l.insert(0, 10)
	until(t, "changes arrive", func() bool { return len(good.output.all()) >= 10 })
	good.signal(syscall.SIGTERM)
	good.wait()

	expired := with(-time.Minute)
	begun := time.Now()
	if _, found := expired.check(); !strings.HasPrefix(found.notOK(), "mongodb fail STRM-MONGODB-CERTIFICATE, version skip") {
		t.Errorf("%+v", found)
	}
	expired.node().refused(fault.MongoCertificate, "expired")
	if took := time.Since(begun); took > 40*time.Second { // the driver alone would look for a server for half a minute, twice
		t.Errorf("found after %s", took)
	}
}

// A password that is rotated in the file of mongodb.uri_file is taken by the process that runs.
func TestProcessTakesARotatedPassword(t *testing.T) {
	t.Parallel()
	l, server := newLockedLab(t, "etcd", append(devmongo.Read(""), devmongo.Read("local")...))
	file := filepath.Join(t.TempDir(), "uri")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(as(server, "node", password)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	for i, s := range l.settings {
		if strings.HasPrefix(s, "STREAMER_MONGODB_URI=") {
			l.settings[i] = "STREAMER_MONGODB_URI_FILE=" + file
		}
	}
	n := l.node()
	n.await(nodeRuns)
	l.insert(0, 10)
	until(t, "changes arrive", func() bool { return len(n.output.all()) >= 10 })
	if err := server.SetUser(devmongo.User{Name: "node", Password: "second", Privileges: append(devmongo.Read(""), devmongo.Read("local")...)}); err != nil {
		t.Fatal(err)
	}
	server.DropConnections()
	until(t, "the node says that it is not let in", func() bool { return strings.Contains(ask(t, n.address()+"/health").body, "STRM-MONGODB-CREDENTIALS") })
	write("second")
	n.await("connected to MongoDB anew")
	l.insert(10, 20)
	until(t, "changes arrive again", func() bool { return len(n.output.all()) >= 20 })
	n.signal(syscall.SIGTERM)
	if exit := n.wait(); exit != 0 {
		t.Errorf("exit code %d", exit)
	}
}

// What MongoDB answers for a while is waited for, and its reason is told once.
func TestStartWaitsForErrorsThatPass(t *testing.T) {
	t.Parallel()
	server := devmongotest.Start(t, devmongo.Config{Preset: "sharded", Release: "7.0"})
	l := labOn(t, "etcd", server.URI())
	failing := bson.D{{Key: "failCommands", Value: bson.A{"aggregate", "find"}}, {Key: "errorCode", Value: 202}, {Key: "appName", Value: "streamer " + l.cluster + "/node"}}
	failPoint(l, server, bson.D{{Key: "times", Value: 4}}, failing)
	n := l.node()
	line := n.await("MongoDB does not serve yet")
	if !strings.Contains(line, "Location202") && !strings.Contains(line, "NetworkInterfaceExceededTimeLimit") {
		t.Errorf("no reason: %s", line)
	}
	n.await(nodeRuns)
	if told := strings.Count(strings.Join(n.notes.all(), "\n"), "MongoDB does not serve yet"); told != 1 {
		t.Errorf("told %d times", told)
	}
	failPoint(l, server, "alwaysOn", failing)
	impatient := l.with("STREAMER_NODE_ID=node", "STREAMER_MONGODB_SERVER_SELECTION_TIMEOUT=3s")
	impatient.node().refused(fault.MongoRefused, "202")
}
