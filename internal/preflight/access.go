package preflight

import (
	"time"

	"github.com/mongostream/streamer/fault"
)

// A serverFacts is what is known of one of a node's servers.
type serverFacts struct {
	Address string    // empty: there is none
	Expires time.Time // when its certificate does; zero: it speaks plaintext
	Clients bool      // it asks clients for certificates
}

// expirySoon is how long before its end a certificate should have been replaced: most that are renewed by themselves are, a third of their
// life before.
const expirySoon = 14 * 24 * time.Hour

// judgeCertificate judges a server that may listen where it does.
func judgeCertificate(s serverFacts, now time.Time) finding {
	until := s.Expires.UTC().Format(time.RFC3339)
	switch {
	case s.Address == "":
		return fine("the server is off")
	case s.Expires.IsZero():
		return fine("plaintext at %s", s.Address)
	case s.Expires.Sub(now) < expirySoon:
		return warning(fault.AccessExpires, "the certificate is valid until %s", until)
	case s.Clients:
		return fine("TLS at %s, valid until %s; clients are asked for certificates", s.Address, until)
	}
	return fine("TLS at %s, valid until %s", s.Address, until)
}

// judgeIdentities judges who is listed: tokens, and certificates' subjects. Whether JWTs are taken, and clients' certificates of an authority
// asked for, says who else may come.
func judgeIdentities(tokens, subjects int, jwts, certificates bool) finding {
	switch {
	case tokens+subjects > 0:
		return fine("%d tokens and %d subjects of certificates are listed", tokens, subjects)
	case jwts:
		return fine("no tokens are listed: clients need a JWT")
	case certificates:
		return fine("no identities are listed: anyone with a certificate of the CA can read everything")
	}
	return fine("authentication is off: anyone who can connect can read everything")
}

// judgeSigningKeys judges how many keys may sign JWTs.
func judgeSigningKeys(keys int) finding {
	if keys == 0 {
		return fine("JWTs are not accepted")
	}
	return fine("%d keys may sign JWTs", keys)
}
