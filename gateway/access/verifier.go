package access

import (
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Why a JWT is rejected. No error contains the token.
var (
	errExpired    = errors.New("the token has expired")
	errNotYet     = errors.New("the token is not valid yet")
	errAudience   = errors.New("the token has another audience, or none")
	errIssuer     = errors.New("the token has another issuer, or none")
	errClaim      = errors.New("the token lacks exp, or one of its claims has the wrong form")
	errSignature  = errors.New("the token is not signed by a key of the key set, or not with RS256, ES256 or EdDSA")
	errUnknownKey = errors.New("the token names a key that is not in the key set")
	errWhichKey   = errors.New("the token names no key, and several keys match")
	errCritical   = errors.New("the token requires unknown extensions (crit)")
	errNoSubject  = errors.New("the token names no subject (sub)")
	errNotAToken  = errors.New("the token is unknown and not a JWT")
	errFarAway    = errors.New("the token expires after the year 9999")
)

// lastExpiry is the end of the year 9999.
const lastExpiry = 253402300800

// An expectation is what tokens must contain.
type expectation struct {
	Issuer    string
	Audiences []string // the token must name one of them
	Leeway    time.Duration
}

// A verifier verifies JWTs. Its methods are safe for concurrent use.
type verifier struct {
	keys   func() keySet
	parser *jwt.Parser
	leeway time.Duration
}

// newVerifier returns a verifier; keys returns the current keys.
func newVerifier(e expectation, keys func() keySet) *verifier {
	return &verifier{keys: keys, leeway: e.Leeway, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{rs256, es256, eddsa}), jwt.WithStrictDecoding(), jwt.WithExpirationRequired(), jwt.WithLeeway(e.Leeway),
		jwt.WithIssuer(e.Issuer), jwt.WithAudience(e.Audiences...),
	)}
}

// A verifiedToken is the content of a verified JWT.
type verifiedToken struct {
	Subject string         // never empty
	Expires time.Time      // including the leeway
	Claims  map[string]any // as encoding/json decodes them
}

// Verify returns the content of a JWT. Claims are matched by their exact names, because
// encoding/json would match EXP in a struct. Errors do not contain the token.
func (v *verifier) Verify(token string) (verifiedToken, error) {
	claims := jwt.MapClaims{}
	if _, err := v.parser.ParseWithClaims(token, claims, v.key); err != nil {
		return verifiedToken{}, plain(err)
	}
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil {
		return verifiedToken{}, errClaim
	}
	if s := expires.Unix(); s <= 0 || s >= lastExpiry {
		return verifiedToken{}, errFarAway
	}
	subject, err := claims.GetSubject()
	if err != nil || subject == "" {
		return verifiedToken{}, errNoSubject
	}
	return verifiedToken{Subject: subject, Expires: expires.Add(v.leeway), Claims: claims}, nil
}

// key returns the key for a token that is not verified yet.
func (v *verifier) key(t *jwt.Token) (any, error) {
	if _, critical := t.Header["crit"]; critical {
		return nil, errCritical
	}
	id, isText := t.Header["kid"].(string)
	if _, given := t.Header["kid"]; given && !isText {
		return nil, errUnknownKey
	}
	return v.keys().find(id, t.Method.Alg())
}

// plain replaces errors of the library, which may contain parts of the token.
func plain(err error) error {
	for _, known := range []error{errUnknownKey, errWhichKey, errCritical} {
		if errors.Is(err, known) {
			return known
		}
	}
	for _, e := range []struct{ theirs, ours error }{
		{jwt.ErrTokenMalformed, errNotAToken},
		{jwt.ErrTokenSignatureInvalid, errSignature},
		{jwt.ErrTokenUnverifiable, errSignature},
		{jwt.ErrTokenExpired, errExpired},
		{jwt.ErrTokenNotValidYet, errNotYet},
		{jwt.ErrTokenInvalidIssuer, errIssuer},
		{jwt.ErrTokenInvalidAudience, errAudience},
	} {
		if errors.Is(err, e.theirs) {
			return e.ours
		}
	}
	return errClaim
}
