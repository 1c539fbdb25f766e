package access

import (
	"errors"
	"strings"
)

// maxToken bounds a bearer token: JWTs with many claims have 2 KiB.
const maxToken = 8 << 10

var (
	errTwoHeaders = errors.New("the authorization header is given more than once")
	errScheme     = errors.New("the authorization header must be: Bearer, a space, the token")
	errTokenForm  = errors.New("the bearer token is empty, too long, or contains an invalid character")
)

// bearer parses the values of the authorization header (RFC 6750, section 2.1). No value means no
// token. Anything but one bearer token is an error, which does not contain it.
func bearer(values []string) (token string, err error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", errTwoHeaders
	}
	scheme, token, found := strings.Cut(values[0], " ")
	if !found || !strings.EqualFold(scheme, "bearer") {
		return "", errScheme
	}
	token = strings.Trim(token, " ")
	body := strings.TrimRight(token, "=")
	if body == "" || len(token) > maxToken || strings.ContainsFunc(body, notOfToken) {
		return "", errTokenForm
	}
	return token, nil
}

// notOfToken reports whether a character is outside the b64token alphabet of RFC 6750.
func notOfToken(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("-._~+/", r)
}
