package access

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	issuer   = "https://issuer.example"
	audience = "streamer"
)

// The signers' keys, made once: RSA keys take their time.
//
//nolint:gochecknoglobals // tests and fuzz targets share them
var (
	rsaKey = sync.OnceValue(func() *rsa.PrivateKey { k, _ := rsa.GenerateKey(rand.Reader, 2048); return k })
	ecKey  = sync.OnceValue(func() *ecdsa.PrivateKey { k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader); return k })
	edKey  = sync.OnceValue(func() ed25519.PrivateKey { _, k, _ := ed25519.GenerateKey(rand.Reader); return k })
)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func rsaJWK(kid string) map[string]any {
	pub := rsaKey().PublicKey
	return map[string]any{"kty": "RSA", "kid": kid, "use": "sig", "n": b64(pub.N.Bytes()), "e": b64(big.NewInt(int64(pub.E)).Bytes())}
}

func ecJWK(t testing.TB, kid string) map[string]any {
	t.Helper()
	point, err := ecKey().PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"kty": "EC", "crv": "P-256", "kid": kid, "alg": "ES256", "x": b64(point[1:33]), "y": b64(point[33:])}
}

func edJWK(kid string) map[string]any {
	return map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": b64(edKey().Public().(ed25519.PublicKey))}
}

func set(t testing.TB, keys ...map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func testVerifier(t testing.TB, keys ...map[string]any) *verifier {
	t.Helper()
	k, err := parseKeySet(set(t, keys...))
	if err != nil {
		t.Fatal(err)
	}
	return newVerifier(expectation{Issuer: issuer, Audiences: []string{audience, "other"}, Leeway: 20 * time.Second}, func() keySet { return k })
}

// good are claims of a token that is taken.
func good(change ...func(jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{"sub": "billing", "iss": issuer, "aud": audience, "exp": time.Now().Add(time.Hour).Unix()}
	for _, f := range change {
		f(c)
	}
	return c
}

func sign(t testing.TB, method jwt.SigningMethod, key any, kid string, claims jwt.MapClaims, change ...func(map[string]any)) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	for _, f := range change {
		f(token.Header)
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSignaturesOfEveryKindAreTaken(t *testing.T) {
	v := testVerifier(t, rsaJWK("r"), ecJWK(t, "e"), edJWK("d"))
	for kid, token := range map[string]string{
		"r":              sign(t, jwt.SigningMethodRS256, rsaKey(), "r", good()),
		"e":              sign(t, jwt.SigningMethodES256, ecKey(), "e", good()),
		"d":              sign(t, jwt.SigningMethodEdDSA, edKey(), "d", good()),
		"no key named":   sign(t, jwt.SigningMethodEdDSA, edKey(), "", good()),
		"many audiences": sign(t, jwt.SigningMethodEdDSA, edKey(), "d", good(func(c jwt.MapClaims) { c["aud"] = []string{"a", "other"} })),
	} {
		got, err := v.Verify(token)
		if err != nil || got.Subject != "billing" || got.Claims["iss"] != issuer {
			t.Errorf("%s: %+v, %v", kid, got, err)
		}
		if until := time.Until(got.Expires); until < time.Hour || until > time.Hour+time.Minute {
			t.Errorf("%s: good for %s", kid, until)
		}
	}
}

func TestForgedAndForeignTokensAreRefused(t *testing.T) {
	_, strangerEd, _ := ed25519.GenerateKey(rand.Reader)
	strangerEC, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	with := func(name string, value any) jwt.MapClaims { return good(func(c jwt.MapClaims) { c[name] = value }) }
	without := func(name string) jwt.MapClaims { return good(func(c jwt.MapClaims) { delete(c, name) }) }
	ed := func(c jwt.MapClaims) string { return sign(t, jwt.SigningMethodEdDSA, edKey(), "d", c) }
	genuine := ed(good())
	parts := strings.Split(genuine, ".")
	evil, _ := json.Marshal(with("sub", "admin"))
	der, err := x509.MarshalPKIXPublicKey(&rsaKey().PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	now := time.Now().Unix()
	tests := map[string]struct{ token, want string }{
		"stranger's key, known kid": {sign(t, jwt.SigningMethodEdDSA, strangerEd, "d", good()), "not signed by a key"},
		"stranger's EC key":         {sign(t, jwt.SigningMethodES256, strangerEC, "e", good()), "not signed by a key"},
		"other claims":              {parts[0] + "." + b64(evil) + "." + parts[2], "not signed by a key"},
		"no signature":              {parts[0] + "." + parts[1] + ".", "not signed by a key"},
		"signature of another":      {parts[0] + "." + parts[1] + "." + strings.Split(ed(with("sub", "x")), ".")[2], "not signed by a key"},
		"alg none":                  {sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "r", good()), "not signed by a key"},
		"alg None":                  {rehead(t, parts, map[string]any{"alg": "None", "kid": "d"}), "not signed by a key"},
		"no alg":                    {rehead(t, parts, map[string]any{"kid": "d"}), "not signed by a key"},
		"HS256 with the public key": {sign(t, jwt.SigningMethodHS256, publicPEM, "r", good()), "not signed by a key"},
		"HS256 with the DER":        {sign(t, jwt.SigningMethodHS256, der, "r", good()), "not signed by a key"},
		"HS256 with the modulus":    {sign(t, jwt.SigningMethodHS256, rsaKey().N.Bytes(), "r", good()), "not signed by a key"},
		"HS256 with the Ed25519 key": {
			sign(t, jwt.SigningMethodHS256, []byte(edKey().Public().(ed25519.PublicKey)), "d", good()), "not signed by a key",
		},
		"right key, other algorithm": {sign(t, jwt.SigningMethodRS512, rsaKey(), "r", good()), "not signed by a key"},
		"PSS with the RSA key":       {sign(t, jwt.SigningMethodPS256, rsaKey(), "r", good()), "not signed by a key"},
		"kid of another algorithm":   {sign(t, jwt.SigningMethodEdDSA, edKey(), "r", good()), "a key that is not in the key set"},
		"unknown kid":                {sign(t, jwt.SigningMethodEdDSA, edKey(), "x", good()), "a key that is not in the key set"},
		"kid that is no string":      {sign(t, jwt.SigningMethodEdDSA, edKey(), "", good(), func(h map[string]any) { h["kid"] = 1 }), "a key that is not in the key set"},
		"key brought along": {
			sign(t, jwt.SigningMethodEdDSA, strangerEd, "", good(), func(h map[string]any) {
				h["jwk"] = map[string]any{"kty": "OKP", "crv": "Ed25519", "x": b64(strangerEd.Public().(ed25519.PublicKey))}
			}), "not signed by a key",
		},
		"critical extension":      {sign(t, jwt.SigningMethodEdDSA, edKey(), "d", good(), func(h map[string]any) { h["crit"] = []string{"b64"} }), "crit"},
		"expired":                 {ed(with("exp", now-31)), "expired"},
		"no expiry":               {ed(without("exp")), "exp"},
		"expiry of another case":  {ed(good(func(c jwt.MapClaims) { delete(c, "exp"); c["EXP"] = now + 100 })), "exp"},
		"expiry is text":          {ed(with("exp", "never")), "exp"},
		"expiry is null":          {ed(with("exp", nil)), "exp"},
		"expiry far away":         {ed(with("exp", 1e15)), "year 9999"},
		"not yet":                 {ed(with("nbf", now+60)), "not valid yet"},
		"wrong audience":          {ed(with("aud", "payments")), "another audience"},
		"no audience":             {ed(without("aud")), "exp, or one of its claims"},
		"empty audience":          {ed(with("aud", []string{})), "exp, or one of its claims"},
		"audience begins alike":   {ed(with("aud", audience+"x")), "another audience"},
		"wrong issuer":            {ed(with("iss", "https://evil.example")), "another issuer"},
		"no issuer":               {ed(without("iss")), "exp, or one of its claims"},
		"no subject":              {ed(without("sub")), "no subject"},
		"subject is a number":     {ed(with("sub", 7)), "no subject"},
		"claims are null":         {rebody(t, parts[0], "null"), "not signed by a key"},
		"claims are a list":       {rebody(t, parts[0], "[]"), "not a JWT"},
		"two parts":               {parts[0] + "." + parts[1], "not a JWT"},
		"four parts":              {genuine + ".x", "not a JWT"},
		"padding bits not zero":   {genuine[:len(genuine)-1] + nextOf(genuine[len(genuine)-1]), "not a JWT"},
		"empty":                   {"", "not a JWT"},
		"encrypted (five parts)":  {"a.b.c.d.e", "not a JWT"},
		"header is not an object": {b64([]byte("[]")) + "." + parts[1] + "." + parts[2], "not a JWT"},
	}
	v := testVerifier(t, rsaJWK("r"), ecJWK(t, "e"), edJWK("d"))
	if _, err := v.Verify(genuine); err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		got, err := v.Verify(tt.token)
		if err == nil || !strings.Contains(err.Error(), tt.want) || got.Subject != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// rehead gives a token another header, signed with the secret that an attacker knows: the public
// key.
func rehead(t *testing.T, parts []string, header map[string]any) string {
	t.Helper()
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, edKey().Public().(ed25519.PublicKey))
	mac.Write([]byte(b64(text) + "." + parts[1]))
	return b64(text) + "." + parts[1] + "." + b64(mac.Sum(nil))
}

func rebody(t *testing.T, header, body string) string {
	t.Helper()
	return header + "." + b64([]byte(body)) + "." + b64(make([]byte, ed25519.SignatureSize))
}

// nextOf returns a letter that differs from one of base64 in its last bit: bits that 64 bytes leave
// over.
func nextOf(c byte) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(letters[strings.IndexByte(letters, c)^1])
}

func TestTimesAreTakenWithLeeway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := testVerifier(t, edJWK("d"))
		expiring := sign(t, jwt.SigningMethodEdDSA, edKey(), "d", good(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(time.Minute).Unix() }))
		coming := sign(t, jwt.SigningMethodEdDSA, edKey(), "d", good(func(c jwt.MapClaims) { c["nbf"] = time.Now().Add(time.Minute).Unix() }))
		taken := func(token string) bool { _, err := v.Verify(token); return err == nil }
		if !taken(expiring) || taken(coming) {
			t.Error("at once")
		}
		time.Sleep(40*time.Second - time.Millisecond)
		if taken(coming) {
			t.Error("nbf: taken before the leeway")
		}
		time.Sleep(time.Millisecond)
		if !taken(coming) {
			t.Error("nbf: not taken within the leeway")
		}
		time.Sleep(40*time.Second - time.Millisecond)
		if !taken(expiring) {
			t.Error("exp: not taken within the leeway")
		}
		time.Sleep(time.Millisecond)
		if taken(expiring) {
			t.Error("exp: taken after the leeway")
		}
	})
}

func TestTokenWithoutKeyIDNeedsTheOnlyKey(t *testing.T) {
	_, other, _ := ed25519.GenerateKey(rand.Reader)
	second := map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": "2", "x": b64(other.Public().(ed25519.PublicKey))}
	token := sign(t, jwt.SigningMethodEdDSA, edKey(), "", good())
	if _, err := testVerifier(t, edJWK("1"), ecJWK(t, "e")).Verify(token); err != nil {
		t.Error(err)
	}
	if _, err := testVerifier(t, edJWK("1"), second).Verify(token); err == nil || !strings.Contains(err.Error(), "several keys match") {
		t.Error(err)
	}
}

func TestKeySets(t *testing.T) {
	with := func(key map[string]any, name string, value any) map[string]any { key[name] = value; return key }
	small, _ := rsa.GenerateKey(rand.Reader, 1024) // too small on purpose
	_, encrypting, _ := ed25519.GenerateKey(rand.Reader)
	foreign := with(map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": "enc", "x": b64(encrypting.Public().(ed25519.PublicKey))}, "use", "enc")
	tests := map[string]struct {
		text []byte
		want string // "" where it is taken
	}{
		"all kinds":               {set(t, rsaJWK("r"), ecJWK(t, "e"), edJWK("d")), ""},
		"with keys of no use":     {set(t, foreign, map[string]any{"kty": "EC", "crv": "P-384"}, map[string]any{"kty": "new"}, edJWK("d")), ""},
		"key to verify":           {set(t, with(edJWK("d"), "key_ops", []string{"verify"})), ""},
		"not JSON":                {[]byte("-----BEGIN PUBLIC KEY-----"), "not a JSON Web Key Set"},
		"empty":                   {nil, "not a JSON Web Key Set"},
		"no keys":                 {set(t), "no key for"},
		"only keys of no use":     {set(t, foreign), "no key for"},
		"key to encrypt":          {set(t, with(edJWK("d"), "key_ops", []string{"encrypt"})), "no key for"},
		"key for no operation":    {set(t, with(edJWK("d"), "key_ops", []string{})), "no key for"},
		"algorithm that is weak":  {set(t, with(rsaJWK("r"), "alg", "RS1")), "no key for"},
		"kid twice":               {set(t, edJWK("d"), ecJWK(t, "d")), "duplicate kid"},
		"symmetric":               {set(t, map[string]any{"kty": "oct", "k": "c2VjcmV0"}, edJWK("d")), "contains a private key"},
		"private":                 {set(t, with(edJWK("d"), "d", "c2VjcmV0")), "contains a private key"},
		"small RSA":               {set(t, with(rsaJWK("r"), "n", b64(small.N.Bytes()))), "2048"},
		"huge RSA":                {set(t, with(rsaJWK("r"), "n", b64(append([]byte{1}, make([]byte, 1024)...)))), "8192"},
		"exponent 1":              {set(t, with(rsaJWK("r"), "e", b64([]byte{1}))), "e: must"},
		"huge exponent":           {set(t, with(rsaJWK("r"), "e", b64([]byte{1, 0, 0, 0, 1}))), "e: must"},
		"RSA is not base64":       {set(t, with(rsaJWK("r"), "n", "!")), "n or e"},
		"point off the curve":     {set(t, with(ecJWK(t, "e"), "x", b64(make([]byte, 32)))), "not a point"},
		"point of another length": {set(t, with(ecJWK(t, "e"), "x", "AQ")), "32 bytes"},
		"short Ed25519":           {set(t, with(edJWK("d"), "x", "AQ")), "32 bytes"},
	}
	for name, tt := range tests {
		keys, err := parseKeySet(tt.text)
		switch {
		case tt.want == "" && (err != nil || len(keys) == 0):
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || keys != nil):
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
		case err != nil && strings.Contains(err.Error(), "c2VjcmV0"):
			t.Errorf("%s: quotes the secret: %v", name, err)
		}
	}
	// A set that holds a key of no use takes no token that this key has signed.
	v := testVerifier(t, foreign, edJWK("d"))
	if _, err := v.Verify(sign(t, jwt.SigningMethodEdDSA, encrypting, "enc", good())); err == nil {
		t.Error("a key for encryption has signed a token that was taken")
	}
}

func FuzzKeys(f *testing.F) {
	f.Add(set(f, rsaJWK("r"), ecJWK(f, "e"), edJWK("d")))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"","e":""},{"kty":"oct","k":"AA"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parseKeySet(text)
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
	})
}

// FuzzVerify looks for a token that is taken although it is not the one that was signed.
func FuzzVerify(f *testing.F) {
	v := testVerifier(f, edJWK("d"))
	genuine := sign(f, jwt.SigningMethodEdDSA, edKey(), "d", good(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(24 * time.Hour).Unix() }))
	f.Add(genuine + "x")
	f.Add(sign(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "d", good()))
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if got, err := v.Verify(token); err == nil && token != genuine {
			t.Fatalf("%q was taken as %+v", token, got)
		}
	})
}
