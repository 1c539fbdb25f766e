package uri

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Outcome says how an option is handled.
type outcome string

// The outcomes.
const (
	used     outcome = "used"
	replaced outcome = "replaced"
	refused  outcome = "refused"
)

// An option is a row of the table: it describes one option of connection strings, and how it is
// handled.
type option struct {
	name string
	also []string // other spellings
	what outcome
	why  string // the effect of a used option, or the harm of a refused one
	// instead names the replacement of a replaced option. values lists the values with the same
	// effect as the replacement; they need no remark.
	instead string
	values  []string
	quiet   bool // whatever it asks for, nobody misses it
	secret  bool // its value is never shown
	repeats bool // it may occur several times
	foreign bool // other drivers know it, the driver for Go does not
	// form checks a value of a used option; nil accepts every value that the driver accepts.
	form func(value string) error
	// tell returns a remark for operators about a used value, or nothing.
	tell func(value string) string
}

// Bounds of timeouts. A shorter one breaks connections that are only slow; a longer one does not
// detect dead connections.
const (
	leastConnect = time.Second
	mostConnect  = time.Minute
	leastBeat    = 500 * time.Millisecond // the driver's own
	mostBeat     = time.Minute
	leastIdle    = time.Second
)

// leastPool is the number of connections that a node's own requests need, in addition to those of
// its streams.
const leastPool = 10

// table has a row for each option, in the order of MongoDB's manual.
func table() []option {
	return []option{
		{name: "replicaSet", what: used, why: "the servers must belong to this set: otherwise the start fails with the name of the set that they belong to"},
		{name: "directConnection", also: []string{"connect"}, what: used, why: "true reads the one server that is named, and follows no election: `check` warns where the set has other members"},
		{name: "loadBalanced", what: refused, why: "true ties each change stream to one connection of a load balancer; name the routers themselves",
			form: only("false")},
		{name: "srvMaxHosts", what: used, why: "only with mongodb+srv", form: count},
		{name: "srvServiceName", what: used, why: "only with mongodb+srv"},
		{name: "localThresholdMS", what: used, why: "which of several routers is near"},

		{name: "tls", also: []string{"ssl"}, what: used, why: "on by itself with mongodb+srv and with any option of certificates"},
		{name: "tlsCAFile", also: []string{"sslCertificateAuthorityFile"}, what: used, why: "read when the node starts"},
		{name: "tlsCertificateKeyFile", also: []string{"sslClientCertificateKeyFile"}, what: used, why: "the node's certificate and its key, read when the node starts"},
		{name: "tlsCertificateKeyFilePassword", also: []string{"sslClientCertificateKeyPassword"}, what: used, secret: true, why: "never shown"},
		{name: "tlsCertificateFile", what: used, why: "the node's certificate alone, with tlsPrivateKeyFile"},
		{name: "tlsPrivateKeyFile", what: used, why: "its key alone"},
		{name: "tlsInsecure", also: []string{"sslInsecure"}, what: used, why: "true verifies nothing: `config check` warns"},
		{name: "tlsDisableOCSPEndpointCheck", what: used, why: "as the driver does"},
		{name: "tlsDisableCertificateRevocationCheck", what: used, why: "as the driver does"},
		{name: "tlsAllowInvalidCertificates", what: refused, foreign: true, why: "the driver would verify certificates all the same; tlsInsecure=true verifies nothing"},
		{name: "tlsAllowInvalidHostnames", what: refused, foreign: true, why: "the driver would verify names all the same; tlsInsecure=true verifies nothing"},

		{name: "authMechanism", what: used, why: "SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509, MONGODB-AWS, MONGODB-OIDC, PLAIN; GSSAPI is refused: it needs Kerberos' libraries",
			form: noKerberos},
		{name: "authMechanismProperties", what: used, secret: true, why: "never shown"},
		{name: "authSource", what: used, why: "the database of the user"},

		{name: "connectTimeoutMS", what: used, why: fmt.Sprintf("from %d to %d: it also ends connections whose server is silent", ms(leastConnect), ms(mostConnect)),
			form: between(leastConnect, mostConnect)},
		{name: "heartbeatFrequencyMS", also: []string{"heartbeatIntervalMS"}, what: used, form: between(leastBeat, mostBeat),
			why: fmt.Sprintf("from %d to %d: how soon a new primary, or a dead one, is noticed", ms(leastBeat), ms(mostBeat))},
		{name: "serverMonitoringMode", what: replaced, instead: "auto, as the driver for Go ignores it in connection strings", values: []string{"auto"}},
		{name: "serverSelectionTimeoutMS", what: replaced, instead: "`mongodb.server_selection_timeout`"},
		{name: "timeoutMS", what: replaced, instead: "none: it would end every wait for changes, and with it the stream", values: []string{"0"}},
		{name: "socketTimeoutMS", what: replaced, instead: "none: a wait for changes is bounded by `mongodb.max_await`; the driver for Go ignores it", values: []string{"0"}},
		{name: "maxIdleTimeMS", what: used, why: fmt.Sprintf("0 or from %d: less would open a connection for every request", ms(leastIdle)), form: idle},
		{name: "waitQueueTimeoutMS", what: replaced, foreign: true, instead: "the bound of each request"},
		{name: "waitQueueMultiple", what: replaced, foreign: true, instead: "the bound of each request"},

		{name: "maxPoolSize", what: used, why: fmt.Sprintf("for the node's own requests, and raised to %d; streams have connections of their own (`mongodb.max_streams`)", leastPool), tell: pool},
		{name: "minPoolSize", what: replaced, instead: "0: connections are opened when they are needed", values: []string{"0"}},
		{name: "maxConnecting", what: used, why: "how many connections are opened at a time"},
		{name: "compressors", what: used, why: "snappy, zlib, zstd: costs CPU on both sides, saves network", form: compressors},
		{name: "zlibCompressionLevel", what: used, why: "with compressors"},
		{name: "zstdCompressionLevel", what: used, why: "with compressors"},

		{name: "readPreference", what: replaced, instead: "primary: whether a position is still in the log, only the server that is read can tell", values: []string{"primary"}},
		{name: "readPreferenceTags", what: replaced, repeats: true, instead: "none, as for readPreference"},
		{name: "maxStalenessSeconds", also: []string{"maxStaleness"}, what: replaced, instead: "none, as for readPreference", values: []string{"-1"}},
		{name: "readConcernLevel", what: replaced, instead: "majority: what may be rolled back is never delivered", values: []string{"majority"}},
		{name: "w", what: replaced, instead: "majority: a checkpoint that is rolled back was never saved", values: []string{"majority"}},
		{name: "journal", what: replaced, instead: "true, as a majority implies", values: []string{"true"}},
		{name: "wTimeoutMS", what: replaced, foreign: true, instead: "the bound of each save"},
		{name: "retryWrites", what: used, why: "false is for servers that know no retryable writes"},
		{name: "retryReads", what: replaced, instead: "true; change streams are reopened by the node itself", values: []string{"true"}},
		{name: "maxAdaptiveRetries", what: used, why: "how often an overloaded server is asked again", form: count},
		{name: "enableOverloadRetargeting", what: used, why: "as the driver does"},

		{name: "appName", what: replaced, quiet: true, instead: "`streamer CLUSTER/NODE`, by which operators find the streams in currentOp"},
		{name: "uuidRepresentation", what: replaced, quiet: true, foreign: true, instead: "nothing: changes are not decoded"},
		{name: "proxyHost", what: refused, foreign: true, why: "the driver would connect without the proxy"},
		{name: "proxyPort", what: refused, foreign: true, why: "as proxyHost"},
		{name: "proxyUsername", what: refused, foreign: true, secret: true, why: "as proxyHost"},
		{name: "proxyPassword", what: refused, foreign: true, secret: true, why: "as proxyHost"},
	}
}

// lookup returns the row of an option; case does not matter.
func lookup(name string) (option, bool) {
	is := func(spelling string) bool { return strings.EqualFold(spelling, name) }
	all := table()
	i := slices.IndexFunc(all, func(o option) bool { return is(o.name) || slices.ContainsFunc(o.also, is) })
	if i < 0 {
		return option{}, false
	}
	return all[i], true
}

func ms(d time.Duration) int64 { return d.Milliseconds() }

// number reads a whole number that is not negative.
func number(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 0 {
		return 0, errors.New("must be a whole number")
	}
	return n, nil
}

func count(value string) error {
	_, err := number(value)
	return err
}

// between takes milliseconds within bounds.
func between(least, most time.Duration) func(string) error {
	return func(value string) error {
		n, err := number(value)
		if err == nil && (n < ms(least) || n > ms(most)) {
			err = fmt.Errorf("must be from %d to %d", ms(least), ms(most))
		}
		return err
	}
}

func idle(value string) error {
	n, err := number(value)
	if err == nil && n > 0 && n < ms(leastIdle) {
		err = fmt.Errorf("must be 0 or at least %d: less would open a connection for every request", ms(leastIdle))
	}
	return err
}

func pool(value string) string {
	if n, _ := number(value); n > 0 && n < leastPool {
		return fmt.Sprintf("maxPoolSize is raised to %d, which a node needs beside the connections of its streams", leastPool)
	}
	return ""
}

// only takes one value.
func only(right string) func(string) error {
	return func(value string) error {
		if value != right {
			return errors.New("must be " + right)
		}
		return nil
	}
}

func noKerberos(value string) error {
	if strings.EqualFold(value, "GSSAPI") {
		return errors.New("must not be GSSAPI: Kerberos is not built in")
	}
	return nil
}

func compressors(value string) error {
	for name := range strings.SplitSeq(value, ",") {
		if !slices.Contains([]string{"snappy", "zlib", "zstd"}, name) {
			return errors.New("must be of snappy, zlib, zstd")
		}
	}
	return nil
}

// direct reports whether a value of directConnection, or of connect, asks for one server.
func direct(value string) bool {
	return strings.EqualFold(value, "true") || strings.EqualFold(value, "direct")
}
