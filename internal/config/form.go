package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	bucket "github.com/mongostream/streamer/internal/s3/uri"
)

// forms are the checks that the tags of the table name.
func forms() map[string]func(string) error {
	return map[string]func(string) error{
		"address":    func(text string) error { return checkAddress(text, 0) },
		"database":   checkDatabase,
		"endpoint":   checkEndpoint,
		"loopback":   checkLoopback,
		"listener":   checkListener,
		"name":       checkName,
		"namespace":  checkNamespace,
		"origin":     checkOrigin,
		"prefix":     checkPrefix,
		"collection": checkCollection,
		"signing":    checkSigning,
		"broker":     func(text string) error { return checkAddress(text, 1) },
		"network":    checkNetwork,
		"nats":       checkNATS,
		"receiver":   checkReceiver,
		"store":      checkStore,
	}
}

// checkStore takes the URL of a folder, or of a bucket.
func checkStore(text string) error {
	if strings.HasPrefix(text, "s3:") { // as backend.SharedStore decides
		_, err := bucket.Parse(text)
		return err
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "file" || !isFolder(u) {
		return errors.New("must be the URL of a folder or a bucket, such as file:///var/lib/streamer/log or s3://bucket/prefix")
	}
	return nil
}

// isFolder reports whether a URL has a path of a folder, and nothing else.
func isFolder(u *url.URL) bool {
	only := u.Host == "" && u.RawQuery == "" && u.Fragment == ""
	return only && path.IsAbs(u.Path) && path.Clean(u.Path) != "/"
}

// checkName accepts names that can be part of an etcd key, a log line and a metric's label without
// quoting.
func checkName(text string) error {
	bad := strings.ContainsFunc(text, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("._-", r)
	})
	if bad || text == "" || len(text) > 253 {
		return errors.New("must be 1 to 253 letters, digits, dots, underscores or hyphens")
	}
	return nil
}

// checkDatabase accepts the names of databases that MongoDB accepts (manual: "MongoDB Limits and
// Thresholds"), except MongoDB's own.
func checkDatabase(text string) error {
	switch {
	case text == "admin" || text == "config" || text == "local":
		return errors.New("belongs to MongoDB itself")
	case text == "" || len(text) > 63 || strings.ContainsAny(text, "/\\. \"$*<>:|?\x00"):
		return errors.New("is not a database's name: 1 to 63 bytes without / \\ . \" $ * < > : | ? and spaces")
	default:
		return nil
	}
}

// checkNamespace takes db.coll and db.*. A star anywhere else would be a legal name, but the author
// certainly means a pattern.
func checkNamespace(text string) error {
	db, coll, _ := strings.Cut(text, ".")
	if err := checkDatabase(db); err != nil {
		return err
	}
	switch {
	case coll == "*":
		return nil
	case coll == "" || len(text) > 255 || strings.ContainsAny(coll, "$*\x00"):
		return errors.New("must be a namespace, db.coll, or db.* for a whole database")
	case strings.HasPrefix(coll, "system."):
		return errors.New("belongs to MongoDB itself")
	default:
		return nil
	}
}

// checkAddress takes host:port with a port of at least lowest; 0 leaves the choice to the system.
func checkAddress(text string, lowest int) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return errors.New("must be host:port")
	}
	if n, err := strconv.Atoi(port); err != nil || n < lowest || n > 65535 {
		return fmt.Errorf("must end in a port from %d to 65535", lowest)
	}
	return nil
}

// checkListener accepts an address, or nothing for no listener.
func checkListener(text string) error {
	if text == "" {
		return nil
	}
	return checkAddress(text, 0)
}

// checkLoopback takes an address that cannot be reached from other machines.
func checkLoopback(text string) error {
	host, _, _ := net.SplitHostPort(text)
	if !isHere(host) {
		return errors.New("must be a loopback address, such as 127.0.0.1:6060")
	}
	return checkAddress(text, 0)
}

// isHere reports whether a host is this machine. Names are not resolved.
func isHere(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// checkEndpoint takes host:port, bare or as a URL without anything else.
func checkEndpoint(text string) error {
	address := strings.TrimPrefix(strings.TrimPrefix(text, "http://"), "https://")
	if strings.HasPrefix(address, ":") || strings.ContainsAny(address, "/@ ") || checkAddress(address, 1) != nil {
		return errors.New("must be host:port, or the same behind http:// or https://")
	}
	return nil
}

// checkPrefix accepts prefixes of keys.
func checkPrefix(text string) error {
	isPath := strings.HasPrefix(text, "/") && !strings.HasSuffix(text, "/")
	if !isPath || strings.ContainsAny(text, " \x00") {
		return errors.New("must begin with a slash and not end with one, such as /streamer")
	}
	return nil
}

// checkOrigin takes an origin in the form that browsers send, because origins are compared
// literally.
func checkOrigin(text string) error {
	u, err := url.Parse(text)
	if err != nil || !isOrigin(u, text) {
		return errors.New("must be an origin, such as https://app.example.com: in lower case, without a default port or a pattern")
	}
	return nil
}

func isOrigin(u *url.URL, text string) bool {
	port, known := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	literal := u.Scheme+"://"+u.Host == text && strings.ToLower(text) == text
	host := u.Hostname() != "" && !strings.Contains(u.Host, "*")
	return known && literal && host && u.Port() != port && !strings.HasSuffix(u.Host, ":")
}

// checkCollection takes the namespace of a collection.
func checkCollection(text string) error {
	if err := checkNamespace(text); err != nil {
		return err
	}
	if strings.HasSuffix(text, ".*") {
		return errors.New("must be a collection, db.coll")
	}
	return nil
}

// checkSigning accepts secrets that are hard to guess, because anyone who knows the secret can sign
// in our name.
func checkSigning(text string) error {
	if len(text) < 16 {
		return errors.New("must have at least 16 bytes; openssl rand -hex 32 makes a good one")
	}
	return nil
}

// checkNetwork takes a network in CIDR notation.
func checkNetwork(text string) error {
	if _, err := netip.ParsePrefix(text); err != nil {
		return errors.New("must be a network, such as 10.0.0.0/8")
	}
	return nil
}

// checkNATS takes addresses of NATS servers, separated by commas.
func checkNATS(text string) error {
	for address := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(address)
		isServer := err == nil && u.Hostname() != "" && u.Path == ""
		switch {
		case !isServer, u.Scheme != "nats" && u.Scheme != "tls":
			return errors.New("must be an address such as nats://nats-1:4222, or several with commas")
		case u.User != nil:
			return errors.New("must have no credentials before the host: they have keys of their own")
		}
	}
	return nil
}
