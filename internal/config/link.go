package config

import (
	"net"
	"os"
	"strings"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb/uri"
)

// A Link describes the configured connection to MongoDB or etcd.
type Link struct {
	// Remote has the hosts on other machines; names are not resolved. Plain has those of them that
	// are reached without TLS.
	Remote, Plain []string
	// Unverified says that certificates are not checked, Credentials that the node shows some.
	Unverified, Credentials bool

	keyFile string // of the node's own certificate
}

// Link says where the connection string leads.
func (u URI) Link() (l Link) {
	read, err := uri.Parse(string(u))
	if err != nil {
		return l // the configuration was checked
	}
	encrypted, verified := read.TLS()
	l.Unverified = encrypted && !verified
	l.Credentials = read.Authenticates()
	l.keyFile = read.KeyFile()
	for _, host := range read.Hosts() {
		if name := hostOf(host); !isHere(name) && !strings.HasSuffix(name, ".sock") {
			l.Remote = append(l.Remote, host)
		}
	}
	if !encrypted {
		l.Plain = l.Remote
	}
	return l
}

// Files returns the files that the connection string names.
func (u URI) Files() []string {
	read, err := uri.Parse(string(u))
	if err != nil {
		return nil // the configuration was checked
	}
	return read.Files()
}

// Remarks returns remarks for operators about the connection string's options.
func (u URI) Remarks() []string {
	read, _ := uri.Parse(string(u)) // the configuration was checked
	return read.Remarks()
}

// Link reads the endpoints and files.
func (e Etcd) Link() (l Link) {
	l.Credentials = e.Username != "" || e.TLS.CertFile != ""
	for _, endpoint := range e.Endpoints {
		scheme, host, found := strings.Cut(endpoint, "://")
		if !found {
			scheme = ""
			host = endpoint
		}
		if isHere(hostOf(host)) {
			continue
		}
		l.Remote = append(l.Remote, host)
		if scheme != "https" && e.TLS == (TLS{}) {
			l.Plain = append(l.Plain, host)
		}
	}
	return l
}

// hostOf returns the host of host:port, or of a host alone.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// URIFile returns the file that mongodb.uri_file names in a configuration as Load reads it, empty
// where the connection string is not in a file of its own.
func URIFile(path string, environ []string) (string, error) {
	text, err := readConfig(path)
	if err != nil {
		return "", err
	}
	_, t, err := parseTable(path, text, environ, os.ReadFile)
	return t.secrets["mongodb.uri"], err
}

// ReadURI reads a connection string from the file of mongodb.uri_file.
func ReadURI(path string) (URI, error) {
	text, err := readSecret(path, os.ReadFile)
	if err != nil {
		return "", fault.Newf(fault.ConfigUnreadable, "mongodb.uri_file: %w", err)
	}
	var u URI
	if err := u.UnmarshalText([]byte(text)); err != nil {
		return "", fault.Newf(fault.ConfigBadValue, "mongodb.uri_file: in %s: %w", path, err)
	}
	return u, nil
}

// SecretFiles returns the files that hold the secrets of a configuration as Load reads it, each
// with one of its keys: the configuration itself, the files that it names, and the private keys of
// certificates.
func SecretFiles(path string, environ []string) (map[string]string, error) {
	text, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	c, t, err := parseTable(path, text, environ, os.ReadFile)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, k := range t.keys {
		if file := t.files[k.path]; file != "" && k.hidden() {
			files[file] = k.path
		}
	}
	for key, file := range map[string]string{
		"http.tls.key_file": c.HTTP.TLS.KeyFile, "grpc.tls.key_file": c.GRPC.TLS.KeyFile, "etcd.tls.key_file": c.Etcd.TLS.KeyFile,
		"mongodb.uri": c.MongoDB.URI.Link().keyFile,
	} {
		if file != "" {
			files[file] = key
		}
	}
	return files, nil
}
