package mongodb_test

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access/accesstest"
	"github.com/mongostream/streamer/internal/mongodb"
)

// Servers that answer and cannot be worked with are told within seconds, though the driver would
// look for others for 30 s and then name none.
func TestServersThatDoNotFitAreToldSoon(t *testing.T) {
	t.Parallel()
	set := devmongotest.Start(t, devmongo.Config{}).Addr().String()
	alone := devmongotest.Start(t, devmongo.Config{Standalone: true}).Addr().String()
	other := devmongotest.Start(t, devmongo.Config{Standalone: true}).Addr().String()
	router := devmongotest.Start(t, devmongo.Config{Preset: "sharded"}).Addr().String()
	for _, c := range []struct {
		uri  string
		code fault.Code
		says string
	}{
		{"mongodb://" + set + "/?replicaSet=other", fault.MongoReplicaSet, "the servers belong to rs0, not to other"},
		{"mongodb://" + set + "/?replicaSet=other&directConnection=true", fault.MongoReplicaSet, "the servers belong to rs0, not to other"},
		{"mongodb://" + router + "/?replicaSet=rs0", fault.MongoReplicaSet, "the servers are routers (mongos), not members of rs0"},
		{"mongodb://" + alone + "/?replicaSet=rs0", fault.MongoStandalone, alone + " is a standalone server"},
		{"mongodb://" + alone + "," + other + "/", fault.MongoStandalone, "is a standalone server"},
		{"mongodb://" + set + "," + router + "/?replicaSet=x", fault.MongoReplicaSet, "not members of x: " + set + ": rs0, " + router + ": a router (mongos)"},
	} {
		t.Run(c.uri, func(t *testing.T) {
			t.Parallel()
			refused(t, c.uri, c.code, c.says)
		})
	}
}

// refused fails the test where a connection string does not give the code, with the text, within
// seconds.
func refused(t *testing.T, uri string, code fault.Code, says string) {
	t.Helper()
	begun := time.Now()
	client, err := mongodb.Dial(t.Context(), mongodb.Config{URI: uri, SelectionTimeout: time.Minute})
	if err == nil {
		client.Close()
	}
	if fault.Of(err) != code || !strings.Contains(fmt.Sprint(err), says) {
		t.Errorf("%v, want %s: %s", err, code, says)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("told after %s", took)
	}
}

// A server that belongs elsewhere does not keep the others, which may be away for a moment, from
// being waited for.
func TestServersThatMayFitAreWaitedFor(t *testing.T) {
	t.Parallel()
	away, set := devmongotest.FreeAddress(), devmongotest.Start(t, devmongo.Config{}).Addr().String()
	_, err := mongodb.Dial(t.Context(), mongodb.Config{URI: "mongodb://" + set + "," + away + "/?replicaSet=other", SelectionTimeout: time.Second})
	if fault.Of(err) != fault.MongoUnreachable {
		t.Error(err)
	}
}

// A name server that does not know the hosts now may know them soon.
func TestHostsThatAreNotFoundAreWaitedFor(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	_, err := mongodb.Dial(t.Context(), mongodb.Config{URI: "mongodb+srv://streamer.invalid/", SelectionTimeout: time.Second})
	if took := time.Since(begun); fault.Of(err) != fault.MongoUnreachable || took < time.Second {
		t.Errorf("after %v: %v", took, err)
	}
}

// Whose certificate is not accepted is told, whichever side refuses it.
func TestCertificatesThatAreRefusedAreTold(t *testing.T) {
	t.Parallel()
	authority, stranger := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	serve := func(addr string, valid time.Duration, asks tls.ClientAuthType) string {
		pair, err := tls.X509KeyPair(authority.Issue(t, "server", valid))
		if err != nil {
			t.Fatal(err)
		}
		return devmongotest.Start(t, devmongo.Config{Addr: addr, TLS: &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientAuth: asks, ClientCAs: authority.Client(t, "").RootCAs,
		}}).URI()
	}
	key := filepath.Join(t.TempDir(), "key.pem")
	cert, private := authority.Issue(t, "node", -time.Minute)
	if err := os.WriteFile(key, append(cert, private...), 0o600); err != nil {
		t.Fatal(err)
	}
	const here = "127.0.0.1:0"
	good, ca := serve(here, time.Hour, tls.RequireAndVerifyClientCert), "&tlsCAFile="+authority.CAFile(t)
	for name, c := range map[string]struct{ uri, says string }{
		"the server's has expired": {serve(here, -time.Minute, tls.NoClientCert) + ca, "expired"},
		"the authority is unknown": {good + "&tlsCAFile=" + stranger.CAFile(t), "unknown authority"},
		"the name is another":      {serve("127.0.0.2:0", time.Hour, tls.NoClientCert) + ca, "127.0.0.2"},
		"the node's has expired":   {good + ca + "&tlsCertificateKeyFile=" + key, "expired"},
		"the node shows none":      {good + ca, "certificate required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, c.uri, fault.MongoCertificate, c.says)
		})
	}
}

// A server that ends connections before it answers may be behind a proxy that has nobody yet, so it
// is waited for; the error says what else it may be.
func TestOneSideThatSpeaksTLS(t *testing.T) {
	t.Parallel()
	pair, err := tls.X509KeyPair(accesstest.NewAuthority(t).Issue(t, "server", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for uri, says := range map[string]string{
		devmongotest.Start(t, devmongo.Config{}).URI() + "&tls=true":                                          "perhaps it does not speak TLS",
		devmongotest.Start(t, devmongo.Config{TLS: &tls.Config{Certificates: []tls.Certificate{pair}}}).URI(): "perhaps it wants TLS (tls=true)",
	} {
		_, err := mongodb.Dial(t.Context(), mongodb.Config{URI: uri, SelectionTimeout: 3 * time.Second})
		if fault.Of(err) != fault.MongoUnreachable || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v", uri, err)
		}
	}
}
