package node

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access/accesstest"
)

// A lock is a MongoDB that lets in only its users: root, who may do everything, and the node.
type lock struct {
	*rig

	node devmongo.User
}

// newLock makes a rig whose nodes authenticate with a password, in a connection string that has a
// file of its own.
func newLock(t *testing.T, cfg devmongo.Config, privileges []devmongo.Privilege, settings ...string) *lock {
	t.Helper()
	l := &lock{node: devmongo.User{Name: "node", Password: "first", Privileges: privileges}}
	cfg.Users = append(cfg.Users, l.node, devmongo.User{Name: "root", Password: "secret", Privileges: devmongo.Root()})
	l.rig = newRig(t, cfg, settings...)
	l.client = dial(t, as(l.server, "root", "secret"))
	l.settings = slices.DeleteFunc(l.settings, func(s string) bool { return strings.HasPrefix(s, "STREAMER_MONGODB_URI=") })
	l.uriFile = filepath.Join(t.TempDir(), "uri")
	l.settings = append(l.settings, "STREAMER_MONGODB_URI_FILE="+l.uriFile)
	l.write(as(l.server, l.node.Name, l.node.Password))
	return l
}

// as returns the connection string of a user.
func as(s *devmongo.Server, name, password string) string {
	return strings.Replace(s.URI(), "mongodb://", "mongodb://"+name+":"+password+"@", 1)
}

// write puts a connection string into the nodes' file.
func (l *lock) write(uri string) {
	l.Helper()
	if err := os.WriteFile(l.uriFile, []byte(uri+"&heartbeatFrequencyMS=500\n"), 0o600); err != nil {
		l.Fatal(err)
	}
}

// change changes the node's user.
func (l *lock) change(adjust func(*devmongo.User)) {
	l.Helper()
	adjust(&l.node)
	if err := l.server.SetUser(l.node); err != nil {
		l.Fatal(err)
	}
}

// least are the privileges that the documentation asks for, and no others.
func least() []devmongo.Privilege { return append(devmongo.Read(""), devmongo.Read("local")...) }

// failing waits until reading has a problem with the code, which says what to do.
func (n *live) failing(code fault.Code) {
	n.Helper()
	n.until("the problem has "+string(code), func() bool { return n.has("mongodb", code) })
}

// A node that is not let in, or may not do what it must, does not start, and says what is missing.
func TestUsersThatCannotStartANode(t *testing.T) {
	t.Parallel()
	only := func(actions ...string) []devmongo.Privilege { return []devmongo.Privilege{{Actions: actions}} }
	for _, c := range []struct {
		name       string
		privileges []devmongo.Privilege
		password   string
		settings   []string
		want       fault.Code
	}{
		{"the rights that are documented", least(), "first", nil, ""},
		{"one database", devmongo.Read("shop"), "first", nil, ""},
		{"checkpoints in MongoDB", append(least(), devmongo.ReadWrite("streamer")...), "first", []string{"STREAMER_RELIABILITY_CHECKPOINT_BACKEND=mongo"}, ""},
		{"a wrong password", least(), "wrong", nil, fault.MongoCredentials},
		{"no right at all", nil, "first", nil, fault.MongoUnauthorized},
		{"find without changeStream", only("find"), "first", nil, fault.MongoUnauthorized},
		{"changeStream without find", only("changeStream"), "first", nil, fault.MongoUnauthorized},
		{"another database", devmongo.Read("crm"), "first", nil, fault.MongoUnauthorized},
		{"no right to write checkpoints", least(), "first", []string{"STREAMER_RELIABILITY_CHECKPOINT_BACKEND=mongo"}, fault.MongoUnauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLock(t, devmongo.Config{}, c.privileges, c.settings...)
			l.write(as(l.server, "node", c.password))
			service, err := l.assemble()
			if fault.Of(err) != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "first") {
				t.Errorf("the password is told: %v", err)
			}
			if err == nil {
				service.Close()
			}
		})
	}
}

// A password that is changed under a running node stops nothing: connections that are open stay,
// new ones wait for the new password, which comes with the file of the connection string, and
// meanwhile the node says what it waits for.
func TestPasswordIsRotatedUnderARunningNode(t *testing.T) {
	t.Parallel()
	l := newLock(t, devmongo.Config{}, least())
	n := l.begin()
	n.sees(l.series(0, 20)...)
	l.change(func(u *devmongo.User) { u.Password = "second" })
	n.sees(l.series(20, 40)...)
	l.server.DropConnections()
	n.failing(fault.MongoCredentials)
	l.series(40, 60)
	l.write("mongodb://node:p@ss/word@" + l.server.Addr().String() + "/?replicaSet=rs0") // a mistake, which changes nothing
	l.write(as(l.server, "node", "second"))
	n.sees(idsUpTo(60)...)
	n.goesOn()
	n.once(idsUpTo(60)...)
	n.saysNothing()
}

// Where the new user is there before the old one goes, nobody waits.
func TestUserIsReplacedUnderARunningNode(t *testing.T) {
	t.Parallel()
	l := newLock(t, devmongo.Config{}, least())
	n := l.begin()
	n.sees(l.series(0, 20)...)
	opened := l.server.Stats().ChangeStreamsOpened
	if err := l.server.SetUser(devmongo.User{Name: "next", Password: "next", Privileges: least()}); err != nil {
		t.Fatal(err)
	}
	l.write(as(l.server, "next", "next"))
	n.until("the stream is opened by the next user", func() bool { return l.server.Stats().ChangeStreamsOpened > opened })
	l.server.RemoveUser("admin", "node")
	n.sees(l.series(20, 40)...)
	n.once(idsUpTo(40)...)
	n.saysNothing()
}

// A connection string that leads to another deployment is not followed, whatever is written there.
func TestConnectionStringOfAnotherDeploymentIsNotFollowed(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	l := newLock(t, devmongo.Config{}, least())
	other := devmongotest.Start(t, devmongo.Config{
		Users:  []devmongo.User{{Name: "node", Password: "first", Privileges: least()}},
		Adjust: func(p *devmongo.Profile) { p.BeforeReply = func(string, string) { looks.Add(1) } },
	})
	n := l.begin()
	n.sees(l.series(0, 20)...)
	opened := l.server.Stats().ChangeStreamsOpened
	l.write(as(other, "node", "first"))
	n.until("the other deployment is looked at, and left", func() bool { return looks.Load() > 0 && other.Stats().ConnectionsOpen == 0 })
	n.goesOn()
	if again := l.server.Stats().ChangeStreamsOpened - opened; again != 0 || other.Stats().ChangeStreamsOpened != 0 {
		t.Errorf("%d streams were opened again, %d there", again, other.Stats().ChangeStreamsOpened)
	}
}

// A right that is taken away ends the node, with what is missing; the next one continues where it
// was.
func TestRightsThatAreRevokedUnderARunningNode(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(*lock){
		"the right to watch": func(l *lock) {
			l.change(func(u *devmongo.User) { u.Privileges = []devmongo.Privilege{{Actions: []string{"find"}}} })
		},
		"the user": func(l *lock) { l.server.RemoveUser("admin", "node") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLock(t, devmongo.Config{}, least())
			n := l.begin()
			n.sees(l.series(0, 20)...)
			revoke(l)
			l.series(20, 40)
			<-n.ended
			if fault.Of(n.err) != fault.MongoUnauthorized {
				t.Errorf("ended with %v", n.err)
			}
			l.change(func(u *devmongo.User) { u.Privileges = least() })
			next := l.begin()
			next.until("all has arrived", func() bool { return len(missing(append(n.ids(), next.ids()...), idsUpTo(40))) == 0 })
			if len(next.losses()) != 0 || len(next.gaps()) != 0 {
				t.Errorf("%d losses, %d gaps", len(next.losses()), len(next.gaps()))
			}
		})
	}
}

// Without the right to read local, which is taken away, a position is proven by opening a stream at
// its time: what the log loses then is told as before.
func TestRightToReadTheOplogIsRevokedUnderARunningNode(t *testing.T) {
	t.Parallel()
	l := newLock(t, devmongo.Config{NoopEvery: 100 * time.Millisecond}, least())
	n := l.begin()
	n.sees(l.series(0, 20)...)
	l.change(func(u *devmongo.User) { u.Privileges = devmongo.Read("") })
	n.sees(l.series(20, 40)...)
	l.server.DropConnections()
	n.sees(l.series(40, 60)...)
	n.once(idsUpTo(60)...)
	n.saysNothing()
	n.stopped()
	l.series(60, 70)
	l.server.TruncateOplog(1)
	next := l.begin()
	next.until("the loss is told", func() bool { return len(next.losses()) > 0 })
}

// Certificates that expire or whose authority is replaced break new connections, which the node
// says; new files are taken without a restart.
func TestCertificatesChangeUnderARunningNode(t *testing.T) {
	t.Parallel()
	authority, successor := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	of := func(a *accesstest.Authority, valid time.Duration, clients *accesstest.Authority) *tls.Config {
		pair, err := tls.X509KeyPair(a.Issue(t, "server", valid))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients.Client(t, "").RootCAs}
	}
	ca, key := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "key.pem")
	issue := func(a *accesstest.Authority) {
		t.Helper()
		cert, private := a.Issue(t, "node", time.Hour)
		pem, err := os.ReadFile(a.CAFile(t))
		if err != nil {
			t.Fatal(err)
		}
		for path, content := range map[string][]byte{ca: pem, key: append(cert, private...)} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	issue(authority)
	r := newRig(t, devmongo.Config{TLS: of(authority, time.Hour, authority), Users: []devmongo.User{
		{Name: "CN=node", DB: devmongo.External, Privileges: least()}, {Name: "root", Password: "secret", Privileges: devmongo.Root()},
	}})
	r.client = dial(t, as(r.server, "root", "secret")+"&tls=true&tlsInsecure=true")
	n := r.begin("STREAMER_MONGODB_URI=" + r.server.URI() + "&heartbeatFrequencyMS=500&authMechanism=MONGODB-X509&tlsCAFile=" + ca + "&tlsCertificateKeyFile=" + key)
	n.sees(r.series(0, 20)...)

	r.server.SetTLS(of(authority, -time.Minute, authority))
	r.server.DropConnections()
	n.failing(fault.MongoCertificate)
	r.server.SetTLS(of(authority, time.Hour, authority))
	n.sees(r.series(20, 40)...)

	r.server.SetTLS(of(successor, time.Hour, successor)) // which knows nothing of the node's certificate, and the node nothing of it
	r.server.DropConnections()
	n.failing(fault.MongoCertificate)
	issue(successor)
	n.sees(r.series(40, 60)...)
	n.once(idsUpTo(60)...)
	if len(n.losses()) != 0 || len(n.gaps()) != 0 {
		t.Errorf("%d losses, %d gaps", len(n.losses()), len(n.gaps()))
	}
}

// What MongoDB answers for a while and gets over by itself is waited for, at the start, whatever
// step meets it, and while a node runs.
func TestErrorsThatPassAreWaitedFor(t *testing.T) {
	t.Parallel()
	for _, code := range []int{50, 94, 134, 149, 202, 216, 249, 317, 56846} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{}, "STREAMER_RELIABILITY_CHECKPOINT_BACKEND=mongo")
			r.fail(times(4), code, "hello", "aggregate", "find", "ping")
			n := r.beginWith(nil)
			n.until("the log is read", func() bool { return n.service.Log().Stats().Open })
			r.fail(times(6), code, "getMore", "aggregate") // more than an error of no known meaning may come in a row
			r.series(0, 20)
			n.until("the log is read again", func() bool {
				return n.metric("streamer_mongodb_stream_failures_total") >= 6 && n.service.Log().Stats().Open
			})
		})
	}
}

// An error that passes and does not go is told in the end, with its reason.
func TestErrorsThatPassAreNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	for selection := 3 * time.Second; ; selection *= 4 {
		r := newRig(t, devmongo.Config{}, "STREAMER_MONGODB_SERVER_SELECTION_TIMEOUT="+selection.String())
		r.fail("alwaysOn", 202, "aggregate")
		begun := time.Now()
		_, err := r.assemble()
		if fault.Of(err) == fault.MongoUnreachable && selection < time.Minute {
			continue // the machine was too slow to select a server
		}
		if fault.Of(err) != fault.MongoRefused || !strings.Contains(err.Error(), "failCommand") {
			t.Error(err)
		}
		if took := time.Since(begun); took > 20*selection { // four times; two minutes by default
			t.Errorf("it took %s", took)
		}
		return
	}
}
