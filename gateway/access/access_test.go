package access_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// write writes a file of the test's folder, anew where it is there, and returns its path.
func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newAuthenticator(t testing.TB, cfg access.Config) *access.Authenticator {
	t.Helper()
	a, err := access.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// local is a peer on this machine that shows headers in plaintext.
func local(authorization ...string) access.Peer {
	return access.Peer{Address: "127.0.0.1:1", Authorization: authorization}
}

func tokenLine(token, rest string) string { return "token " + access.Hash(token) + " " + rest + "\n" }

// An issuer signs JWTs.
type issuer struct {
	key  ed25519.PrivateKey
	jwks string // its file
}

const (
	issuerName = "https://issuer.example"
	audience   = "streamer"
)

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i := &issuer{jwks: filepath.Join(t.TempDir(), "jwks.json")}
	i.rotate(t, "1")
	return i
}

// rotate gives the issuer another key.
func (i *issuer) rotate(t testing.TB, kid string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.key = key
	write(t, i.jwks, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"`+kid+`","x":"`+base64.RawURLEncoding.EncodeToString(pub)+`"}]}`)
}

func (i *issuer) config() access.Config {
	return access.Config{JWKS: i.jwks, Issuer: issuerName, Audiences: []string{audience}}
}

func (i *issuer) sign(t testing.TB, expires time.Time, rights string) string {
	t.Helper()
	claims := jwt.MapClaims{"sub": "billing", "iss": issuerName, "aud": audience, "exp": expires.Unix()}
	if rights != "" {
		claims["streamer"] = json.RawMessage(rights)
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims).SignedString(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// An authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a := &authority{key: newKey(t)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue returns a certificate and its key as PEM.
func (a *authority) issue(t testing.TB, subject pkix.Name, from, to time.Time) (cert, key string) {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: from, NotAfter: to, KeyUsage: x509.KeyUsageDigitalSignature,
		DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	private := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

// good issues a certificate that is valid now.
func (a *authority) good(t testing.TB, name string) (cert, key string) {
	t.Helper()
	return a.issue(t, pkix.Name{CommonName: name}, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// client returns what a client of servers of this authority dials with, and shows the certificate
// of that name, none for "".
func (a *authority) client(t testing.TB, name string) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	c.RootCAs.AddCert(a.cert)
	if name != "" {
		pair, err := tls.X509KeyPair(both(a.good(t, name)))
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

func both(a, b string) ([]byte, []byte) { return []byte(a), []byte(b) }
