package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWaysToMongoDBAndEtcd(t *testing.T) {
	text := func(l Link) string {
		words := append([]string{strings.Join(l.Remote, ",")}, l.Plain...)
		if l.Unverified {
			words = append(words, "unverified")
		}
		if l.Credentials {
			words = append(words, "credentials")
		}
		return strings.Join(words, " ")
	}
	for uri, want := range map[string]string{
		"mongodb://127.0.0.1:27017/?replicaSet=rs0":                         "",
		"mongodb://localhost,[::1]:27018,127.9.9.9/":                        "",
		"mongodb://%2Ftmp%2Fmongodb-27017.sock/?authSource=a":               "",
		"mongodb://db:27017,127.0.0.1":                                      "db:27017 db:27017",
		"mongodb://u:p@db-1,db-2/?ssl=false":                                "db-1,db-2 db-1 db-2 credentials",
		"mongodb://u:p@[2001:db8::1]/?tls=true":                             "[2001:db8::1] credentials",
		"mongodb://u:a%2Fb%40c@db/?retryWrites=true;TLS=true":               "db credentials",
		"mongodb://localhost.example.com/?tls=true":                         "localhost.example.com",
		"mongodb://db/?tls=true&tlsInsecure=true":                           "db unverified",
		"mongodb://db/?tlsCAFile=/ca.pem":                                   "db",
		"mongodb://db/?tlsCertificateKeyFile=/k&authMechanism=MONGODB-X509": "db credentials",
		"mongodb+srv://u:p@db.example/":                                     "db.example credentials",
		"mongodb+srv://u:p@db.example/?tls=false":                           "db.example db.example credentials",
	} {
		if got := text(URI(uri).Link()); got != want {
			t.Errorf("%s: %q, want %q", uri, got, want)
		}
	}
	for _, tt := range []struct {
		etcd Etcd
		want string
	}{
		{Etcd{Endpoints: []string{"127.0.0.1:2379", "http://localhost:1", "[::1]:2"}}, ""},
		{Etcd{Endpoints: []string{"e:1", "https://f:1", "http://g:1"}, Username: "u"}, "e:1,f:1,g:1 e:1 g:1 credentials"},
		{Etcd{Endpoints: []string{"e:1"}, TLS: TLS{CAFile: "ca"}}, "e:1"},
		{Etcd{Endpoints: []string{"https://e:1"}, TLS: TLS{CertFile: "c", KeyFile: "k"}}, "e:1 credentials"},
	} {
		if got := text(tt.etcd.Link()); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.etcd.Endpoints, got, tt.want)
		}
	}
}

// Where a secret is: in the file itself, in the one that it names, or in neither.
func TestFilesOfSecrets(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "password")
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(secret, []byte("hidden"), 0o600); err != nil {
		t.Fatal(err)
	}
	const key = "http: {tls: {cert_file: /c, key_file: /http.key}}\n"
	for _, tt := range []struct {
		file    string
		environ []string
		want    map[string]string
	}{
		{"mongodb: {uri: mongodb://h/}", nil, map[string]string{}},
		{"mongodb: {uri: mongodb://u:p@h/}", nil, map[string]string{path: "mongodb.uri"}},
		{"mongodb: {uri: mongodb://u:p@h/}", []string{"STREAMER_MONGODB_URI=mongodb://u:p@i/"}, map[string]string{}},
		{"etcd: {username: u, password_file: " + secret + "}", nil, map[string]string{secret: "etcd.password"}},
		{"etcd: {username: u, password: x}", []string{"STREAMER_ETCD_PASSWORD_FILE=" + secret}, map[string]string{secret: "etcd.password"}},
		{key + "mongodb: {uri: 'mongodb://h/?tlsCertificateKeyFile=%2Fmongo.pem'}", nil, map[string]string{"/http.key": "http.tls.key_file", "/mongo.pem": "mongodb.uri"}},
	} {
		if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := SecretFiles(path, tt.environ)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s, %v: %s", tt.file, tt.environ, diff)
		}
	}
}
