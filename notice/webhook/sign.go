package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a delivery.
const (
	// HeaderSignature holds v1= and the signature in hexadecimal digits.
	HeaderSignature = "X-Streamer-Signature"
	// HeaderTimestamp holds when the request was signed: seconds since 1970.
	HeaderTimestamp = "X-Streamer-Timestamp"
	// HeaderDelivery holds the id of the delivery: the same each time it is tried.
	HeaderDelivery = "X-Streamer-Delivery"
)

// Tolerance is how far the time of a request may be from the receiver's: what is older may be a request of another day, played again.
const Tolerance = 5 * time.Minute

// What Verify finds wrong.
var (
	// ErrSignature says that nobody who knows the secret has signed this body at this time.
	ErrSignature = errors.New("the signature is missing or wrong")
	// ErrStale says that the request is too old, or from the future.
	ErrStale = errors.New("the request is too old, or a clock is wrong")
)

// version is the scheme of signatures.
const version = "v1="

// sign returns the signature of a body at a time.
func sign(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(timestamp))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return version + hex.EncodeToString(mac.Sum(nil))
}

// Verify says whether a request with this header and this body, byte by byte as it came, is signed with one of the secrets; while a secret
// is being replaced there are two. It returns nil, or an error that wraps ErrSignature or ErrStale.
func Verify(header http.Header, body []byte, now time.Time, secrets ...string) error {
	timestamp, said := header.Get(HeaderTimestamp), header.Get(HeaderSignature)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || !strings.HasPrefix(said, version) {
		return fmt.Errorf("%w: no %s or %s that can be read", ErrSignature, HeaderTimestamp, HeaderSignature)
	}
	known := false
	for _, secret := range secrets {
		known = secret != "" && hmac.Equal([]byte(said), []byte(sign(secret, timestamp, body))) || known
	}
	if !known {
		return ErrSignature
	}
	if age := now.Sub(time.Unix(seconds, 0)); age.Abs() > Tolerance {
		return fmt.Errorf("%w: signed %s ago", ErrStale, age.Truncate(time.Second))
	}
	return nil
}
