package uri

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/connection-string.md anew")

const reference = "../../../docs/reference/connection-string.md"

// driverOptions reads the options that the driver knows from its parser.
func driverOptions(t *testing.T) (names []string) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "connstring.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SwitchStmt)
		if tag, is := (*ast.Ident)(nil), false; ok {
			if tag, is = s.Tag.(*ast.Ident); !is || tag.Name != "lowerKey" {
				return true
			}
			for _, clause := range s.Body.List {
				for _, value := range clause.(*ast.CaseClause).List {
					name, err := strconv.Unquote(value.(*ast.BasicLit).Value)
					if err != nil {
						t.Fatal(err)
					}
					names = append(names, name)
				}
			}
		}
		return true
	})
	return names
}

// Every option that the driver knows has a row, and every row is of an option that it knows, or is
// marked as one of other drivers.
func TestTableHasTheOptionsOfTheDriver(t *testing.T) {
	t.Parallel()
	known := driverOptions(t)
	if len(known) < 50 {
		t.Fatalf("the driver's parser knows %d options only: %v", len(known), known)
	}
	for _, name := range known {
		if _, ok := lookup(name); !ok {
			t.Errorf("%s has no row", name)
		}
	}
	for _, o := range table() {
		for _, name := range append([]string{o.name}, o.also...) {
			if slices.Contains(known, strings.ToLower(name)) == o.foreign {
				t.Errorf("%s: the driver knows it: %t", name, o.foreign)
			}
		}
		c, err := connstring.Parse("mongodb://h/?" + o.name + "=1")
		if unknown := err == nil && len(c.UnknownOptions) > 0; unknown != o.foreign {
			t.Errorf("%s: unknown to the driver: %t", o.name, unknown)
		}
		if (o.what == replaced) != (o.instead != "") || (o.what == replaced) == (o.why != "") {
			t.Errorf("%s is %s: %q, %q", o.name, o.what, o.why, o.instead)
		}
	}
}

// Each row acts as its outcome says, under each of its names: the driver gets a used option, a node
// does not start with a refused one, and a replaced one is told and goes nowhere.
func TestRowsActAsTheySay(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"authMechanism": "SCRAM-SHA-1", "authMechanismProperties": "SERVICE_NAME:x", "compressors": "zlib", "connect": "direct", "connectTimeoutMS": "2000",
		"maxIdleTimeMS": "2000", "readConcernLevel": "local", "readPreference": "secondary", "readPreferenceTags": "a:b&readPreference=secondary",
		"maxStalenessSeconds": "90&readPreference=secondary", "maxStaleness": "90&readPreference=secondary", "serverMonitoringMode": "poll", "retryReads": "false",
		"tlsCertificateFile": "c&tlsPrivateKeyFile=k", "tlsPrivateKeyFile": "k&tlsCertificateFile=c", "tlsCertificateKeyFilePassword": "p&tlsCertificateKeyFile=k",
		"sslClientCertificateKeyPassword": "p&tlsCertificateKeyFile=k", "zlibCompressionLevel": "6", "zstdCompressionLevel": "6",
	}
	truths := []string{
		"directConnection", "tls", "ssl", "tlsInsecure", "sslInsecure", "tlsDisableOCSPEndpointCheck", "tlsDisableCertificateRevocationCheck", "retryWrites",
		"enableOverloadRetargeting", "loadBalanced",
	}
	for _, o := range table() {
		for _, name := range append([]string{o.name}, o.also...) {
			value := cmp.Or(values[name], "600")
			if slices.Contains(truths, name) {
				value = "true"
			} else if name == "journal" {
				value = "false"
			}
			scheme := plainScheme
			if strings.HasPrefix(name, "srv") {
				scheme = srvScheme
			}
			u, err := Parse(scheme + "u:p@h/?" + name + "=" + value)
			if o.what == refused {
				if err == nil || !strings.Contains(err.Error(), "must not have "+o.name+":") {
					t.Errorf("%s is refused: %v", name, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s is %s: %v", name, o.what, err)
				continue
			}
			got := strings.Contains(u.compose(u.scheme, "", func(s setting) bool { return s.what == used }), name+"=")
			told := slices.ContainsFunc(u.Remarks(), func(r string) bool { return strings.HasPrefix(r, o.name+" is replaced by ") })
			if got != (o.what == used) || told != (o.what == replaced && !o.quiet) {
				t.Errorf("%s is %s: the driver gets it: %t, it is told: %t", name, o.what, got, told)
			}
		}
	}
}

// TestOptionsAreDocumented compares docs/reference/connection-string.md with the table.
func TestOptionsAreDocumented(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`<!-- Generated from internal/mongodb/uri/options.go by go generate ./internal/mongodb/uri. Do not edit. -->

# Connection string

` + "`mongodb.uri`" + ` is a [connection string of MongoDB](https://www.mongodb.com/docs/manual/reference/connection-string/). In the user's name, the password and the
values of options every character that is not a letter, a digit or one of ` + "`- . _ ~`" + ` is best percent-encoded; ` + "`: / ? # [ ] @ %`" + `, spaces, quotes and
characters beyond ASCII must be, and are refused otherwise. No message and no log line shows the user, the password or the value of a secret option.

| option | outcome | says |
|---|---|---|
`)
	for _, o := range table() {
		names := "`" + strings.Join(append([]string{o.name}, o.also...), "`, `") + "`"
		says := o.why
		if o.what == replaced {
			says = "by " + o.instead
		}
		if o.secret && o.what == used {
			names += " (secret)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", names, o.what, says)
	}
	b.WriteString(`
- *used*: the driver gets it. *replaced*: the node sets it itself; ` + "`streamer config check`" + `, ` + "`streamer check`" + ` and the log of the start say so
  (STRM-MONGODB-OPTION), unless it asks for the same. *refused*: the node does not start (STRM-CONFIG-BAD-VALUE).
- Options that are not in the table are refused, because the driver would ignore them in silence, and so is a repeated option.

The table has all options of the driver (` + "`internal/mongodb/uri.TestTableHasTheOptionsOfTheDriver`" + `), each row acts as it says
(` + "`internal/mongodb/uri.TestRowsActAsTheySay`" + `), and a tail runs with all that would harm it (` + "`test/node.TestOptionsThatWouldHarmTheTail`" + `).
`)
	if *rewrite {
		if err := os.WriteFile(reference, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(reference); err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what the table says: go generate ./internal/mongodb/uri (%v)", reference, err)
	}
}
