package access

import (
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// What is wrong with a JWT. None quotes the token.
var (
	errExpired    = errors.New("the token has expired")
	errNotYet     = errors.New("the token is not valid yet")
	errAudience   = errors.New("the token was made for another audience, or names none")
	errIssuer     = errors.New("the token is of another issuer, or names none")
	errClaim      = errors.New("the token lacks exp, or one of its claims has the wrong form")
	errSignature  = errors.New("the token is not signed by a key of the key set, or not with RS256, ES256 or EdDSA")
	errUnknownKey = errors.New("the token names a key that is not in the key set")
	errWhichKey   = errors.New("the token names no key, and more than one would do")
	errCritical   = errors.New("the token demands extensions (crit) that are not known here")
	errNoSubject  = errors.New("the token names no subject (sub)")
	errNotAToken  = errors.New("the token is not known, and is no JWT")
	errFarAway    = errors.New("the token expires after the year 9999")
)

// lastExpiry is the end of the year 9999.
const lastExpiry = 253402300800

// expectation says what tokens must be.
type expectation struct {
	Issuer    string
	Audiences []string // one of which
	Leeway    time.Duration
}

// A verifier takes JWTs. Its methods may be called from anywhere at once.
type verifier struct {
	keys   func() keySet
	parser *jwt.Parser
	leeway time.Duration
}

// newVerifier makes a verifier; keys returns the keys as they are now.
func newVerifier(e expectation, keys func() keySet) *verifier {
	return &verifier{keys: keys, leeway: e.Leeway, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{rs256, es256, eddsa}), jwt.WithStrictDecoding(), jwt.WithExpirationRequired(), jwt.WithLeeway(e.Leeway),
		jwt.WithIssuer(e.Issuer), jwt.WithAudience(e.Audiences...),
	)}
}

// A verifiedToken is what a JWT says that has been verified.
type verifiedToken struct {
	Subject string         // never empty
	Expires time.Time      // when it is no longer good, with the leeway
	Claims  map[string]any // as encoding/json decodes them
}

// Verify returns what a JWT says. Claims are looked at by their exact names: in a struct encoding/json would take EXP too. An error is in
// words of ours and quotes nothing of the token.
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

// key finds the key of a token that has not been verified yet.
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

// plain says in our words what is wrong; the library's may quote parts of the token.
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
