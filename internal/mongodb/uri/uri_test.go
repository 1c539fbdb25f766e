package uri

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A password that is not percent-encoded is refused, or is the whole password: whatever its
// characters, no part of it becomes a host, and no error or shown text has a part of it.
func TestPasswordsAreWholeOrRefused(t *testing.T) {
	t.Parallel()
	const before, after = "Zq7xK", "Wv9jR"
	var raw []string
	for c := range 0x100 {
		raw = append(raw, before+string([]byte{byte(c)})+after, string([]byte{byte(c)})+before, before+string([]byte{byte(c)}))
	}
	for _, odd := range []string{
		"@/", "@", "/", ":", "%", "%4", "%zz", "%%", "#", "?", " ", "[", "]", "@x:1/y?w=1&z", "?w=majority", "/db?tls=false@", "@@", "é", "€", "\u2028", "<", ">", "`", "\\",
		"@localhost/", ":@", "://", "mongodb://", "&", ";", "&tls=true", "@[::1]/", "@%2Ftmp%2Fx.sock/", "\n", "\r\n",
	} {
		raw = append(raw, before+odd+after, odd+after, before+odd)
	}
	accepted := 0
	for _, password := range raw {
		for _, form := range []string{
			"mongodb://user:%s@db1:27017/?replicaSet=rs0", "mongodb+srv://user:%s@db1", "mongodb://user:%s@db1:27017", "mongodb://%s@db1:27017/", "mongodb://%s:password@db1/",
			"mongodb://db1/?authMechanism=MONGODB-X509&tlsCertificateKeyFile=k&tlsCertificateKeyFilePassword=%s",
			"mongodb://u:p@db1/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:%s", "mongodb://user:%s", "mongodb://%s", "mongodb://user:%s/db1",
			"mongodb://db1/?proxyPassword=%s",
		} {
			text := fmt.Sprintf(form, password)
			u, err := Parse(text)
			named := strings.Contains(form, "@db1") || strings.Contains(form, "//db1") // otherwise a password may be a host, as far as anybody can tell
			if err == nil && named {
				accepted++
				if host := strings.TrimSuffix(u.Hosts()[0], ":27017"); len(u.Hosts()) != 1 || host != "db1" {
					t.Errorf("%q: hosts %v", text, u.Hosts())
				}
			}
			shown := ""
			if err == nil {
				shown = u.String() + strings.Join(u.Remarks(), "")
			} else {
				shown = err.Error()
			}
			if (named || err != nil) && (strings.Contains(shown, before) || strings.Contains(shown, after)) {
				t.Errorf("%q shows %q", text, shown)
			}
			if err == nil && strings.HasPrefix(form, "mongodb://user:%s@") {
				if want, _ := url.PathUnescape(password); u.read.Password != want || u.read.Username != "user" {
					t.Errorf("%q: password %q of %q", text, u.read.Password, u.read.Username)
				}
			}
		}
	}
	if accepted < 100 {
		t.Errorf("only %d are accepted", accepted)
	}
}

// The characters that MongoDB's manual and RFC 3986 reserve are never taken as they stand.
func TestReservedCharactersAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range "@/:?#[]% \t\n\"<>\\^`{|}é" {
		text := "mongodb://user:pa" + string(c) + "ss@db1/"
		if _, err := Parse(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// Every password can be written.
func TestEncodedPasswordsArePasswords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		password := string(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "password"))
		u, err := Parse("mongodb://user:" + strings.ReplaceAll(url.QueryEscape(password), "+", "%20") + "@db1,db2:1/?replicaSet=rs0")
		if err != nil {
			t.Fatalf("%q: %v", password, err)
		}
		if u.read.Password != password || !slices.Equal(u.Hosts(), []string{"db1", "db2:1"}) {
			t.Fatalf("%q: %q at %v", password, u.read.Password, u.Hosts())
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("mongodb://u:p@h/?w=1")
	f.Add("mongodb+srv://u:p%40@h.example.com/db?authSource=a;tls=true")
	f.Add("mongodb://[::1]:27017,%2Ftmp%2Fmongodb-27017.sock,h/?readPreferenceTags=a:b&readPreferenceTags=")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(u.compose(u.scheme, u.user, func(setting) bool { return true }))
		if err != nil {
			t.Fatalf("%q is accepted once: %v", text, err)
		}
		if diff := cmp.Diff(u.Hosts(), again.Hosts()); diff != "" {
			t.Error(diff)
		}
		if u.user != "" && !strings.HasPrefix(u.String(), u.scheme+mask+"@") {
			t.Errorf("%q shows %q", text, u)
		}
	})
}

func TestWhatIsShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"mongodb://h":                            "mongodb://h",
		"mongodb://u:p@h:1,i/db?w=1;tls=true":    "mongodb://***@h:1,i/db?w=1&tls=true",
		"mongodb+srv://u@h/?authSource=%24other": "mongodb+srv://***@h/?authSource=%24other",
		"mongodb://u:p@h/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:x&appName=y": "mongodb://***@h/?authMechanism=MONGODB-AWS&authMechanismProperties=***&appName=***",
	} {
		u, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if u.String() != want {
			t.Errorf("%s shows %s, want %s", text, u, want)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                       "must begin with mongodb://",
		"MONGODB://h":                            "must begin with mongodb://",
		"http://h":                               "must begin with mongodb://",
		"mongodb://":                             "must name hosts",
		"mongodb:///?w=1":                        "must name hosts",
		"mongodb://h?w=1":                        "must have a /",
		"mongodb://h,,i/":                        "must name hosts",
		"mongodb://h:0/":                         "must name hosts",
		"mongodb://h:70000/":                     "must name hosts",
		"mongodb://[::1/":                        "percent-encoded|must name hosts",
		"mongodb://@h/":                          "percent-encoded",
		"mongodb://u:@h/":                        "percent-encoded",
		"mongodb://h%41/":                        "must name hosts",
		"mongodb://%2Ftmp%2Fx/":                  "must name hosts",
		"mongodb+srv://h:1/":                     "one host without a port",
		"mongodb+srv://h,i/":                     "one host without a port",
		"mongodb+srv://h/?directConnection=true": "must not have directConnection",
		"mongodb://h/?srvMaxHosts=1":             "goes with mongodb+srv",
		"mongodb+srv://h/?srvMaxHosts=1&replicaSet=a":                              "wrong srvMaxHosts",
		"mongodb+srv://h/?srvMaxHosts=x":                                           "wrong srvMaxHosts",
		"mongodb+srv://h/?srvServiceName=":                                         "wrong srvServiceName",
		"mongodb://h/?replicaset":                                                  "does not know",
		"mongodb://h/?=x":                                                          "does not know",
		"mongodb://h/?readPreferenc=primary":                                       "does not know: readPreferenc",
		"mongodb://h/?tls=true&tls=true":                                           "has tls twice",
		"mongodb://h/?tls=true&ssl=true":                                           "has tls twice",
		"mongodb://h/?tls=yes":                                                     "refused by the driver",
		"mongodb://h/?authSource=a+b":                                              "has a + in authSource",
		"mongodb://h,i/?directConnection=true":                                     "refused by the driver",
		"mongodb://h/?tlsCertificateFile=x":                                        "refused by the driver",
		"mongodb://u:p@h/?authMechanism=GSSAPI":                                    "Kerberos",
		"mongodb://u:p@h/?authMechanism=X":                                         "refused by the driver",
		"mongodb://h/?tlsCertificateKeyFile=k&tlsCertificateKeyFilePassword=a&b=c": "unknown option after tlsCertificateKeyFilePassword",
		"mongodb://u:p@h/?tlsCertificateKeyFilePassword=a&tls=yes":                 "refused by the driver: compare",
		"mongodb://h/?loadBalanced=true":                                           "must not have loadBalanced",
		"mongodb://h/?tlsAllowInvalidCertificates=true":                            "must not have tlsAllowInvalidCertificates",
		"mongodb://h/?tlsAllowInvalidHostnames=true":                               "must not have tlsAllowInvalidHostnames",
		"mongodb://h/?proxyHost=p":                                                 "must not have proxyHost",
		"mongodb://h/?connectTimeoutMS=0":                                          "wrong connectTimeoutMS, which must be from 1000 to 60000",
		"mongodb://h/?connectTimeoutMS=x":                                          "wrong connectTimeoutMS",
		"mongodb://h/?heartbeatFrequencyMS=499":                                    "wrong heartbeatFrequencyMS",
		"mongodb://h/?heartbeatFrequencyMS=3600000":                                "wrong heartbeatFrequencyMS",
		"mongodb://h/?maxIdleTimeMS=1":                                             "wrong maxIdleTimeMS",
		"mongodb://h/?compressors=lz4":                                             "wrong compressors",
	} {
		_, err := Parse(text)
		fits := err != nil && slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool { return strings.Contains(err.Error(), w) })
		if !fits {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What is replaced is told where it asks for something else, and the driver never sees it.
func TestReplacedOptionsNeverReachTheDriver(t *testing.T) {
	t.Parallel()
	text := "mongodb://u:p@h/?timeoutMS=500&socketTimeoutMS=500&maxPoolSize=1&minPoolSize=50&readPreference=secondary&readPreferenceTags=a:b&readPreferenceTags=" +
		"&maxStalenessSeconds=90&readConcernLevel=local&w=0&journal=false&wTimeoutMS=5&retryReads=false&serverSelectionTimeoutMS=1&waitQueueTimeoutMS=1" +
		"&serverMonitoringMode=poll&appName=x&uuidRepresentation=standard&retryWrites=false&directConnection=true"
	u, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	o, err := u.Options()
	if err != nil {
		t.Fatal(err)
	}
	if o.Timeout != nil || *o.MaxPoolSize != leastPool || o.MinPoolSize != nil || o.ReadPreference != nil || o.ReadConcern != nil || o.WriteConcern != nil ||
		o.RetryReads != nil || o.ServerSelectionTimeout != nil || o.AppName != nil || *o.RetryWrites || !*o.Direct || o.Auth.Password != "p" {
		t.Errorf("%+v", o)
	}
	told := strings.Join(u.Remarks(), "\n")
	for _, s := range u.settings {
		if silent := s.quiet || s.name == "retryWrites" || s.name == "directConnection"; silent == strings.Contains(told, s.name+" ") {
			t.Errorf("%s: %s", s.name, told)
		}
	}
	for _, text := range []string{
		"mongodb+srv://u:p@h/?retryWrites=true&w=majority&appName=Cluster0", // as Atlas gives it
		"mongodb://h/?timeoutMS=0&readPreference=primary&readConcernLevel=majority&journal=true&retryReads=true&directConnection=false&maxPoolSize=100",
	} {
		u, err := Parse(text)
		if err != nil || len(u.Remarks()) > 0 {
			t.Errorf("%s: %v, %v", text, u.Remarks(), err)
		}
	}
}
