package config

import (
	"net"
	"net/url"
	"os"
	"strings"
)

// A Link is what the configuration says about the way to MongoDB or etcd.
type Link struct {
	// Remote has the hosts on other machines; names are not resolved. Plain has those of them that are reached without TLS.
	Remote, Plain []string
	// Unverified says that certificates are not checked, Credentials that the node shows some.
	Unverified, Credentials bool

	keyFile string // of the node's own certificate
}

// Link reads the connection string.
func (u URI) Link() (l Link) {
	scheme, rest, _ := strings.Cut(string(u), "://")
	rest, query, _ := strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		l.Credentials, rest = true, rest[at+1:]
	}
	hosts, _, _ := strings.Cut(rest, "/")
	tls := scheme == "mongodb+srv"
	for option := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(option, "=")
		switch name = strings.ToLower(name); {
		case name == "tls" || name == "ssl":
			tls = value == "true"
		case name == "tlsinsecure" || name == "sslinsecure":
			l.Unverified = value == "true"
		case name == "tlscertificatekeyfile" || name == "sslclientcertificatekeyfile":
			l.keyFile, _ = url.QueryUnescape(value) // the driver refuses what cannot be read
			tls = true
		case strings.HasPrefix(name, "tls") && strings.HasSuffix(name, "file"): // with files, the driver uses TLS
			tls = true
		case name == "authmechanism":
			l.Credentials = true
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if name := hostOf(host); !isHere(name) && !strings.HasSuffix(name, ".sock") {
			l.Remote = append(l.Remote, host)
		}
	}
	if !tls {
		l.Plain = l.Remote
	}
	return l
}

// Link reads the endpoints and files.
func (e Etcd) Link() (l Link) {
	l.Credentials = e.Username != "" || e.TLS.CertFile != ""
	for _, endpoint := range e.Endpoints {
		scheme, host, found := strings.Cut(endpoint, "://")
		if !found {
			scheme, host = "", endpoint
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

// SecretFiles returns the files that hold the secrets of a configuration as Load reads it, each with one of its keys: the configuration
// itself, the files that it names, and the private keys of certificates.
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
