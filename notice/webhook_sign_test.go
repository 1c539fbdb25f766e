package notice

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// The form is what receivers in other languages compute: this line is theirs too.
func TestSignatureIsTheSameForEver(t *testing.T) {
	// printf '1700000000.{"delivery":"x"}' | openssl dgst -sha256 -hmac 'It is a secret.'
	const want = "v1=2d196ffca136d9d184e766f46083e9f943667cfb0c7a2888fb4498a50bc924b3"
	if got := sign("It is a secret.", "1700000000", []byte(`{"delivery":"x"}`)); got != want {
		t.Error(got)
	}
}

func TestForgedAndOldRequestsAreRefused(t *testing.T) {
	const timestamp, secret = "1700000000", "a secret"
	body, at := []byte("body"), time.Unix(1700000000, 0)
	good := func() http.Header {
		return http.Header{HeaderTimestamp: {timestamp}, HeaderSignature: {sign(secret, timestamp, body)}}
	}
	for name, tt := range map[string]struct {
		spoil   func(http.Header)
		body    string
		now     time.Time
		secrets []string
		want    error
	}{
		"good":              {body: "body", now: at, secrets: []string{secret}},
		"good, two secrets": {body: "body", now: at, secrets: []string{"another", secret}},
		"at the edge":       {body: "body", now: at.Add(DeliveryTolerance), secrets: []string{secret}},
		"old":               {body: "body", now: at.Add(DeliveryTolerance + time.Second), secrets: []string{secret}, want: ErrStale},
		"of tomorrow":       {body: "body", now: at.Add(-24 * time.Hour), secrets: []string{secret}, want: ErrStale},
		"another body":      {body: "bodY", now: at, secrets: []string{secret}, want: ErrSignature},
		"another secret":    {body: "body", now: at, secrets: []string{"another"}, want: ErrSignature},
		"no secret":         {body: "body", now: at, want: ErrSignature},
		"another time": {spoil: func(h http.Header) { h.Set(HeaderTimestamp, "1700000001") },
			body: "body", now: at, secrets: []string{secret}, want: ErrSignature},
		"no time":            {spoil: func(h http.Header) { h.Del(HeaderTimestamp) }, body: "body", now: at, secrets: []string{secret}, want: ErrSignature},
		"no signature":       {spoil: func(h http.Header) { h.Del(HeaderSignature) }, body: "body", now: at, secrets: []string{secret}, want: ErrSignature},
		"of another version": {spoil: func(h http.Header) { h.Set(HeaderSignature, "v2=00") }, body: "body", now: at, secrets: []string{secret}, want: ErrSignature},
	} {
		header := good()
		if tt.spoil != nil {
			tt.spoil(header)
		}
		if err := VerifyDelivery(header, []byte(tt.body), tt.now, tt.secrets...); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An empty secret is none, even where somebody signs with it.
	header := http.Header{HeaderTimestamp: {timestamp}, HeaderSignature: {sign("", timestamp, body)}}
	if err := VerifyDelivery(header, body, at, ""); !errors.Is(err, ErrSignature) {
		t.Errorf("signed with nothing: %v", err)
	}
}
