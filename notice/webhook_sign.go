package notice

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
	// HeaderSignature is v1= followed by the signature in hexadecimal.
	HeaderSignature = "X-Streamer-Signature"
	// HeaderTimestamp is the time of signing in Unix seconds.
	HeaderTimestamp = "X-Streamer-Timestamp"
	// HeaderDelivery is the ID of the delivery, the same for every attempt.
	HeaderDelivery = "X-Streamer-Delivery"
)

// DeliveryTolerance is the accepted age of a request, to prevent replays.
const DeliveryTolerance = 5 * time.Minute

// Errors of VerifyDelivery.
var (
	// ErrSignature says that the signature is missing or invalid.
	ErrSignature = errors.New("the signature is missing or wrong")
	// ErrStale says that the timestamp is too old or in the future.
	ErrStale = errors.New("the request is too old, or a clock is wrong")
)

// signatureVersion is the signature scheme.
const signatureVersion = "v1="

// sign returns the signature of a body and a timestamp.
func sign(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(timestamp))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return signatureVersion + hex.EncodeToString(mac.Sum(nil))
}

// SignDelivery sets the headers of a delivery with an id and this exact body. VerifyDelivery checks
// them.
func SignDelivery(header http.Header, id string, body []byte, now time.Time, secret string) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	header.Set(HeaderDelivery, id)
	header.Set(HeaderTimestamp, timestamp)
	header.Set(HeaderSignature, sign(secret, timestamp, body))
}

// VerifyDelivery checks that a request with this header and exact body is signed with one of the
// secrets; there may be two while a secret is rotated. It returns nil, or an error that wraps
// ErrSignature or ErrStale.
func VerifyDelivery(header http.Header, body []byte, now time.Time, secrets ...string) error {
	timestamp, said := header.Get(HeaderTimestamp), header.Get(HeaderSignature)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || !strings.HasPrefix(said, signatureVersion) {
		return fmt.Errorf("%w: no %s or %s that can be read", ErrSignature, HeaderTimestamp, HeaderSignature)
	}
	known := false
	for _, secret := range secrets {
		known = secret != "" && hmac.Equal([]byte(said), []byte(sign(secret, timestamp, body))) || known
	}
	if !known {
		return ErrSignature
	}
	if age := now.Sub(time.Unix(seconds, 0)); age.Abs() > DeliveryTolerance {
		return fmt.Errorf("%w: signed %s ago", ErrStale, age.Truncate(time.Second))
	}
	return nil
}
