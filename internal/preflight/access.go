package preflight

import (
	"fmt"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
)

// A serverFacts describes one of a node's servers.
type serverFacts struct {
	Address string    // empty: there is none
	Open    bool      // other machines reach it
	Expires time.Time // when its certificate does; zero: it speaks plaintext
	Clients bool      // it asks clients for certificates
}

// expirySoon is how long before its end a certificate should have been replaced: most that are
// renewed by themselves are, a third of their life before.
const expirySoon = 14 * 24 * time.Hour

// judgeCertificate judges a server that may listen where it does.
func judgeCertificate(s serverFacts, now time.Time) finding {
	until := s.Expires.UTC().Format(time.RFC3339)
	switch {
	case s.Address == "":
		return fine("the server is off")
	case s.Expires.IsZero() && s.Open:
		return warning(fault.AccessPlaintext, "plaintext at %s, which other machines reach", s.Address)
	case s.Expires.IsZero():
		return fine("plaintext at %s", s.Address)
	case s.Expires.Sub(now) < expirySoon:
		return warning(fault.AccessExpires, "the certificate is valid until %s", until)
	case s.Clients:
		return fine("TLS at %s, valid until %s; clients are asked for certificates", s.Address, until)
	}
	return fine("TLS at %s, valid until %s", s.Address, until)
}

// An identitiesFacts describes the identities that may connect.
type identitiesFacts struct {
	// Open has the servers that other machines reach and that require no credentials.
	Open []string
	// Tokens and Subjects of certificates are listed. Unlimited names who among them has no limits.
	Tokens, Subjects int
	Unlimited        []string
	// JWTs are accepted. Client certificates of an authority are required.
	JWTs, Certificates bool
}

// judgeIdentities judges the identities that may connect.
func judgeIdentities(i identitiesFacts) finding {
	switch {
	case len(i.Open) > 0:
		return warning(fault.AccessOpen, "authentication is off: anyone who can connect to %s can read everything", strings.Join(i.Open, " and "))
	case len(i.Unlimited) > 0:
		return warning(fault.AccessUnlimited, "without a limit of subscriptions or of events and bytes: %s", few(i.Unlimited))
	case i.Tokens+i.Subjects > 0:
		return fine("%d tokens and %d subjects of certificates are listed", i.Tokens, i.Subjects)
	case i.JWTs:
		return fine("no tokens are listed: clients need a JWT")
	case i.Certificates:
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

// judgeUnused judges the keys that are set and have no effect.
func judgeUnused(unused []config.Setting) finding {
	if len(unused) == 0 {
		return fine("every key that is set has an effect")
	}
	each := make([]string, len(unused))
	for i, s := range unused {
		each[i] = fmt.Sprintf("%s: %s needs %s", s.From, s.Key, s.Lacks)
	}
	return warning(fault.ConfigUnused, "without an effect: %s", strings.Join(each, "; "))
}

// judgeSecrets judges the files with secrets; exposed are those that every user of this machine can
// read.
func judgeSecrets(files int, exposed []string) finding {
	if len(exposed) > 0 {
		return warning(fault.ConfigExposed, "their modes let every user of this machine read them: %s", few(exposed))
	}
	return fine("%d files with secrets, none of which everybody may read", files)
}

// judgeLink judges the way to MongoDB or etcd.
func judgeLink(l config.Link, code fault.Code) finding {
	var missing []string
	if len(l.Plain) > 0 {
		missing = append(missing, "no TLS to "+few(l.Plain))
	}
	if l.Unverified {
		missing = append(missing, "certificates are not verified")
	}
	if !l.Credentials {
		missing = append(missing, "no credentials")
	}
	switch {
	case len(l.Remote) == 0:
		return fine("on this machine")
	case len(missing) > 0:
		return warning(code, "%s", strings.Join(missing, "; "))
	}
	return fine("TLS and credentials")
}

// fewNames is how many names a text lists.
const fewNames = 5

// few lists names, and counts those that are too many.
func few(names []string) string {
	text := strings.Join(names[:min(len(names), fewNames)], ", ")
	if more := len(names) - fewNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
