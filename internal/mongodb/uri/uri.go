package uri

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

// The schemes; the second one finds the servers by DNS.
const (
	plainScheme = "mongodb://"
	srvScheme   = "mongodb+srv://"
)

// A URI is a valid connection string.
type URI struct {
	text                          string
	scheme, user, hosts, database string // as in the text; the user with its password, without the @
	settings                      []setting
	read                          *connstring.ConnString // without SRV: nothing has been looked up
}

// A setting is an option with its value.
type setting struct {
	option

	text  string // both, as in the text
	value string
}

// mask replaces hidden text.
const mask = "***"

// Parse reads a connection string. It connects to nothing, looks nothing up and opens no file.
func Parse(text string) (URI, error) {
	u, err := split(text)
	if err != nil {
		return URI{}, err
	}
	if err := u.judge(); err != nil {
		return URI{}, err
	}
	if u.read, err = connstring.ParseAndValidate(u.compose(plainScheme, u.user, func(s setting) bool { return !strings.HasPrefix(s.name, "srv") })); err != nil {
		return URI{}, u.disclose()
	}
	return u, nil
}

// split takes the text apart by RFC 3986, which leaves no doubt about where each part begins.
func split(text string) (u URI, err error) {
	switch {
	case strings.HasPrefix(text, plainScheme):
		u.scheme = plainScheme
	case strings.HasPrefix(text, srvScheme):
		u.scheme = srvScheme
	default:
		return u, errors.New("must begin with mongodb:// or mongodb+srv:// and name a host")
	}
	u.text = text
	rest := text[len(u.scheme):]
	if user, hosts, found := strings.Cut(rest, "@"); found {
		if u.user, rest = user, hosts; !isUser(user) || strings.Contains(hosts, "@") {
			return u, errEncode
		}
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	u.hosts, rest = rest[:end], rest[end:]
	if strings.HasPrefix(rest, "?") {
		return u, errors.New("must have a / between the hosts and the ? of the options")
	}
	database, query, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "?")
	if u.database = database; !isText(database) || !isText(query) {
		return u, errEncode
	}
	for pair := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		s, err := u.setting(pair)
		if err != nil {
			return u, err
		}
		u.settings = append(u.settings, s)
	}
	return u, nil
}

// errEncode says nothing of the text: it is about passwords.
var errEncode = errors.New("has a character that must be percent-encoded, in the user's name, the password or an option: " +
	"write : as %3A, / as %2F, ? as %3F, # as %23, [ as %5B, ] as %5D, @ as %40, % as %25 and a space as %20")

// isUser reports whether a text is a user's name, with or without a password.
func isUser(text string) bool {
	name, password, has := strings.Cut(text, ":")
	return isWord(name) && name != "" && isWord(password) && has == (password != "")
}

// isWord reports whether a text is of characters that mean themselves everywhere in a URI
// (unreserved and sub-delims of RFC 3986), and of others that are percent-encoded.
func isWord(text string) bool { return isOf(text, "-._~!$&'()*+,;=") }

// isText reports whether a text is allowed after the hosts.
func isText(text string) bool { return isOf(text, "-._~!$&'()*+,;=:/?") }

func isOf(text, marks string) bool {
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte(marks, c) >= 0:
		case c == '%':
			if _, err := url.PathUnescape(text[i:min(i+3, len(text))]); err != nil {
				return false
			}
			i += 2
		default:
			return false
		}
	}
	return true
}

// setting reads one option. Its error does not repeat an unknown option after a secret one, because
// that text may belong to the secret.
func (u URI) setting(pair string) (setting, error) {
	name, value, found := strings.Cut(pair, "=")
	o, known := lookup(name)
	s := setting{option: o, text: pair}
	var err error
	switch i := slices.IndexFunc(u.settings, func(s setting) bool { return s.secret }); {
	case !known && i >= 0:
		return s, fmt.Errorf("has an unknown option after %s: if it is part of its value, write & as %%26 and ; as %%3B", u.settings[i].name)
	case !known || !found:
		return s, fmt.Errorf("has an option that the driver does not know: %s", unknown(name))
	case strings.Contains(value, "+"):
		return s, fmt.Errorf("has a + in %s, where it means a space: write %%2B, or %%20 for a space", o.name)
	case !o.repeats && slices.ContainsFunc(u.settings, func(s setting) bool { return s.name == o.name }):
		return s, fmt.Errorf("has %s twice", o.name)
	}
	if s.value, err = url.QueryUnescape(value); err != nil {
		return s, errEncode
	}
	return s, nil
}

// unknown names an option that is not in the table, as far as it is a name.
func unknown(name string) string {
	if name == "" || len(name) > 40 || strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }) {
		return "write it as name=value"
	}
	return name
}

// judge checks hosts and options against the needs of a node.
func (u URI) judge() error {
	hosts := strings.Split(u.hosts, ",")
	for _, host := range hosts {
		if err := checkHost(host); err != nil {
			return err
		}
	}
	if u.srv() {
		if _, _, err := net.SplitHostPort(u.hosts); err == nil || len(hosts) != 1 || strings.ContainsAny(u.hosts, "%[") {
			return errors.New("must name one host without a port after mongodb+srv://")
		}
	}
	for _, s := range u.settings {
		var err error
		if s.form != nil {
			err = s.form(s.value)
		}
		switch {
		case s.what == refused && (err != nil || s.form == nil):
			return fmt.Errorf("must not have %s: %s", s.name, s.why)
		case err != nil:
			return fmt.Errorf("has a wrong %s, which %w", s.name, err)
		case strings.HasPrefix(s.name, "srv") && !u.srv():
			return fmt.Errorf("has %s, which goes with mongodb+srv:// only", s.name)
		case s.name == "srvMaxHosts" && s.value != "0" && u.has("replicaSet"), s.name == "srvServiceName" && (s.value == "" || len(s.value) > 62):
			return fmt.Errorf("has a wrong %s", s.name)
		case u.srv() && s.name == "directConnection" && direct(s.value):
			return errors.New("must not have directConnection with mongodb+srv://")
		}
	}
	return nil
}

// checkHost takes a name, an address or a socket, with or without a port. Its error does not repeat
// the refused text: without an @ it may be a password.
func checkHost(host string) error {
	wrong := errors.New("must name hosts as name, name:port or [address]:port, separated by commas")
	if path, err := url.PathUnescape(host); strings.HasPrefix(strings.ToUpper(host), "%2F") {
		if err != nil || !strings.HasSuffix(path, ".sock") || !isWord(host) {
			return wrong
		}
		return nil
	}
	name := host
	port := ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name, port = host[:i], host[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return wrong
		}
	}
	if address, bracketed := strings.CutPrefix(name, "["); bracketed {
		if ip := net.ParseIP(strings.TrimSuffix(address, "]")); ip == nil || !strings.HasSuffix(name, "]") {
			return wrong
		}
		return nil
	}
	if name == "" || !isOf(name, "-._") || strings.Contains(name, "%") {
		return wrong
	}
	return nil
}

// compose writes a connection string with some of the options.
func (u URI) compose(scheme, user string, with func(setting) bool) string {
	var b strings.Builder
	b.WriteString(scheme)
	if user != "" {
		b.WriteString(user + "@")
	}
	b.WriteString(u.hosts + "/" + u.database)
	separator := "?"
	for _, s := range u.settings {
		if with(s) {
			b.WriteString(separator + s.text)
			separator = "&"
		}
	}
	return b.String()
}

// disclose returns why the driver refuses the text, as far as that cannot contain a secret: from a
// text that has none.
func (u URI) disclose() error {
	generic := errors.New("is refused by the driver: compare the user, the password and the options of authentication with MongoDB's manual")
	if slices.ContainsFunc(u.settings, func(s setting) bool { return s.secret }) {
		return generic
	}
	user, _, has := strings.Cut(u.user, ":")
	if user != "" {
		user = "user"
	}
	if has {
		user += ":password"
	}
	_, err := connstring.ParseAndValidate(u.compose(plainScheme, user, func(s setting) bool { return !strings.HasPrefix(s.name, "srv") }))
	if err == nil {
		return generic
	}
	return fmt.Errorf("is refused by the driver: %w", err)
}

func (u URI) srv() bool { return u.scheme == srvScheme }

func (u URI) has(name string) bool {
	return slices.ContainsFunc(u.settings, func(s setting) bool { return s.name == name })
}

// String returns the connection string without the user, the password, and every value from the
// first secret option on, to which it may belong.
func (u URI) String() string {
	if !u.hasSecret() {
		return u.text
	}
	shown := u
	user := u.user
	shown.settings = slices.Clone(u.settings)
	hidden := false
	for i, s := range shown.settings {
		if hidden = hidden || s.secret; hidden {
			name, _, _ := strings.Cut(s.text, "=")
			shown.settings[i].text = name + "=" + mask
		}
	}
	if user != "" {
		user = mask
	}
	return shown.compose(u.scheme, user, func(setting) bool { return true })
}

// Hosts returns the hosts as they are written. With SRV that is one name, which is not looked up.
func (u URI) Hosts() []string { return u.read.RawHosts }

// TLS reports whether connections are encrypted, and whether the servers' certificates are
// verified.
func (u URI) TLS() (encrypted, verified bool) {
	encrypted = u.read.SSL || u.srv() && !u.read.SSLSet
	return encrypted, encrypted && !u.read.SSLInsecure
}

// Direct reports whether one server is read, whatever it is.
func (u URI) Direct() bool {
	return u.read.DirectConnection || u.read.Connect == connstring.SingleConnect
}

// Authenticates reports whether the node shows credentials.
func (u URI) Authenticates() bool { return u.read.HasAuthParameters() }

// KeyFile returns the file of the node's private key, empty where there is none.
func (u URI) KeyFile() string {
	if u.read.SSLPrivateKeyFile != "" {
		return u.read.SSLPrivateKeyFile
	}
	return u.read.SSLClientCertificateKeyFile
}

// Files returns the files that the driver reads: of certificates, keys and authorities.
func (u URI) Files() (paths []string) {
	for _, path := range []string{u.read.SSLCaFile, u.read.SSLClientCertificateKeyFile, u.read.SSLCertificateFile, u.read.SSLPrivateKeyFile} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// hasSecret reports whether the text has anything that is not shown.
func (u URI) hasSecret() bool {
	return u.user != "" || slices.ContainsFunc(u.settings, func(s setting) bool { return s.secret })
}

// Remarks returns hints for operators: which options are replaced although they request something
// else, and which side effects others have. It repeats no values.
func (u URI) Remarks() (remarks []string) {
	for _, s := range u.settings {
		switch {
		case s.what == replaced && !s.quiet && !slices.Contains(s.values, s.value):
			remarks = append(remarks, fmt.Sprintf("%s is replaced by %s", s.name, s.instead))
		case s.what == used && s.tell != nil && s.tell(s.value) != "":
			remarks = append(remarks, s.tell(s.value))
		}
	}
	return remarks
}

// Options returns the used options for the driver. With SRV it looks up the servers; it reads the
// files that the options name.
func (u URI) Options() (*options.ClientOptions, error) {
	o := options.Client().ApplyURI(u.compose(u.scheme, u.user, func(s setting) bool { return s.what == used }))
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("take the connection string: %w", err)
	}
	if o.LoadBalanced != nil && *o.LoadBalanced {
		return nil, errors.New("the TXT record of the host has loadBalanced, which ties each change stream to one connection")
	}
	if o.MaxPoolSize != nil && *o.MaxPoolSize > 0 {
		o.SetMaxPoolSize(max(*o.MaxPoolSize, leastPool))
	}
	return o, nil
}
