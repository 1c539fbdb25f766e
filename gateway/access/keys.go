package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// keySet holds the public keys that may sign JWTs.
type keySet []publicKey

// A publicKey verifies signatures of one algorithm, whatever the token's header says.
type publicKey struct {
	id, algorithm string
	key           crypto.PublicKey
}

// find returns the key of a token: the one with the ID or, without an ID, the only one of the
// algorithm.
func (s keySet) find(id, algorithm string) (crypto.PublicKey, error) {
	var found []publicKey
	for _, k := range s {
		if k.algorithm == algorithm && (id == "" || k.id == id) {
			found = append(found, k)
		}
	}
	switch {
	case len(found) == 0:
		return nil, errUnknownKey
	case len(found) > 1:
		return nil, errWhichKey
	}
	return found[0].key, nil
}

// A jwk is a key in the form of RFC 7517 and RFC 8037, without the fields of unsupported
// algorithms.
type jwk struct {
	Kty, Kid, Use, Alg, Crv string
	KeyOps                  []string `json:"key_ops"`
	N, E, X, Y, D, K        string
}

const (
	rs256, es256, eddsa = "RS256", "ES256", "EdDSA"

	minRSABits, maxRSABits = 2048, 8192
	maxKeys                = 100
)

var (
	errPrivate = errors.New("contains a private key: list public keys only, and revoke this one")
	errForeign = errors.New("not applicable") // a key for another purpose, which RFC 7517 says to ignore
)

// parseKeySet parses a JWKS file. Keys for other uses or algorithms are skipped; an invalid or
// private key is an error.
func parseKeySet(content []byte) (keySet, error) {
	var file struct{ Keys []jwk }
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("not a JSON Web Key Set: %w", err)
	}
	if len(file.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys, at most %d", len(file.Keys), maxKeys)
	}
	var set keySet
	ids := map[string]bool{}
	for i := range file.Keys {
		k, err := file.Keys[i].public()
		switch {
		case errors.Is(err, errForeign):
			continue
		case err != nil:
			return nil, fmt.Errorf("key %d (kid %.64q): %w", i+1, file.Keys[i].Kid, err)
		case k.id != "" && ids[k.id]:
			return nil, fmt.Errorf("key %d: duplicate kid %.64q", i+1, k.id)
		}
		ids[k.id] = true
		set = append(set, k)
	}
	if len(set) == 0 {
		return nil, errors.New("no key for RS256, ES256 or EdDSA signatures")
	}
	return set, nil
}

// public converts one key.
func (j *jwk) public() (publicKey, error) {
	k := publicKey{id: j.Kid}
	if j.D != "" || j.K != "" || j.Kty == "oct" {
		return k, errPrivate
	}
	hasOtherUse := j.Use != "" && j.Use != "sig"
	hasOtherOps := j.KeyOps != nil && !slices.Contains(j.KeyOps, "verify")
	if hasOtherUse || hasOtherOps {
		return k, errForeign
	}
	var err error
	switch {
	case j.Kty == "RSA":
		k.algorithm = rs256
	case j.Kty == "EC" && j.Crv == "P-256":
		k.algorithm = es256
	case j.Kty == "OKP" && j.Crv == "Ed25519":
		k.algorithm = eddsa
	default:
		return k, errForeign
	}
	if j.Alg != "" && j.Alg != k.algorithm {
		return k, errForeign
	}
	switch k.algorithm {
	case rs256:
		k.key, err = j.rsa()
	case es256:
		k.key, err = j.ecdsa()
	case eddsa:
		k.key, err = j.ed25519()
	}
	return k, err
}

func (j *jwk) rsa() (crypto.PublicKey, error) {
	n, errN := base64.RawURLEncoding.DecodeString(j.N)
	e, errE := base64.RawURLEncoding.DecodeString(j.E)
	if err := errors.Join(errN, errE); err != nil {
		return nil, fmt.Errorf("n or e: %w", err)
	}
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	if bits := modulus.BitLen(); bits < minRSABits || bits > maxRSABits || modulus.Bit(0) == 0 {
		return nil, fmt.Errorf("n: must be odd and have %d to %d bits", minRSABits, maxRSABits)
	}
	if exponent.BitLen() > 31 || exponent.Int64() < 3 || exponent.Bit(0) == 0 {
		return nil, errors.New("e: must be odd, at least 3 and below 2^31")
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

func (j *jwk) ecdsa() (crypto.PublicKey, error) {
	x, errX := base64.RawURLEncoding.DecodeString(j.X)
	y, errY := base64.RawURLEncoding.DecodeString(j.Y)
	if err := errors.Join(errX, errY); err != nil || len(x) != 32 || len(y) != 32 {
		return nil, errors.New("x and y: must have 32 bytes each")
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
	if err != nil {
		return nil, errors.New("x and y: not a point of the curve")
	}
	return key, nil
}

func (j *jwk) ed25519() (crypto.PublicKey, error) {
	x, err := base64.RawURLEncoding.DecodeString(j.X)
	if err != nil || len(x) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("x: must have %d bytes", ed25519.PublicKeySize)
	}
	return ed25519.PublicKey(x), nil
}
