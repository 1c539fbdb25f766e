package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

const rights = `{"namespaces":["shop.*","crm.orders"],"max_subscriptions":7,"events_per_second":8,"bytes_per_second":9}`

// verified is the state of a connection whose client has shown a certificate of that name.
func verified(t *testing.T, a *authority, name string) *tls.ConnectionState {
	t.Helper()
	c := a.client(t, name)
	leaf, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf, a.cert}}}
}

func TestWithoutConfigurationEverybodyMayEverything(t *testing.T) {
	a := newAuthenticator(t, access.Config{})
	i, err := a.Authenticate(local("Basic whatever"))
	if err != nil || !i.Allows("", "") || i.MaxSubscriptions+i.EventsPerSecond+i.BytesPerSecond != 0 {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestIdentityIsOfWhatIsShown(t *testing.T) {
	issuer, ca := newIssuer(t), newAuthority(t)
	cfg := issuer.config()
	cfg.TLS = access.TLSConfig{Certificate: "unread", Key: "unread", ClientCA: "unread"}
	cfg.Identities = write(t, t.TempDir()+"/identities", tokenLine("listed", "name=static namespace=a.b")+"subject CN=gw-1 name=cert namespace=a.c\n")
	a := newAuthenticator(t, cfg)
	good := issuer.sign(t, time.Now().Add(time.Hour), rights)
	known, unknown := verified(t, ca, "gw-1"), verified(t, ca, "gw-2")
	unverified := &tls.ConnectionState{PeerCertificates: known.PeerCertificates}
	tests := map[string]struct {
		state  *tls.ConnectionState
		header []string
		want   string // the name, or with ! what is wrong
	}{
		"listed token":                      {nil, []string{"Bearer listed"}, "static"},
		"JWT":                               {nil, []string{"Bearer " + good}, "billing"},
		"certificate":                       {known, nil, "cert"},
		"token before certificate":          {known, []string{"Bearer listed"}, "static"},
		"bad token beside good certificate": {known, []string{"Bearer wrong"}, "!not a JWT"},
		"bad header beside certificate":     {known, []string{"Basic wrong"}, "!must be: Bearer"},
		"good token, unknown certificate":   {unknown, []string{"Bearer " + good}, "billing"},
		"nothing":                           {nil, nil, "!no token"},
		"TLS alone":                         {&tls.ConnectionState{}, nil, "!no token"},
		"certificate that is not verified":  {unverified, nil, "!no token"},
		"unknown certificate":               {unknown, nil, "!not listed"},
		"forged JWT":                        {nil, []string{"Bearer " + newIssuer(t).sign(t, time.Now().Add(time.Hour), rights)}, "!not signed"},
		"expired JWT":                       {nil, []string{"Bearer " + issuer.sign(t, time.Now().Add(-time.Minute), rights)}, "!expired"},
		"JWT without rights":                {nil, []string{"Bearer " + issuer.sign(t, time.Now().Add(time.Hour), "")}, "!claim \"streamer\""},
	}
	for name, tt := range tests {
		i, err := a.Authenticate(access.Peer{Address: "127.0.0.1:1", TLS: tt.state, Authorization: tt.header})
		wrong, fails := strings.CutPrefix(tt.want, "!")
		switch {
		case fails && (err == nil || i != nil || fault.Of(err) != fault.AccessUnauthenticated || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: %+v, %v", name, i, err)
		case !fails && (err != nil || i.Name != tt.want):
			t.Errorf("%s: %+v, %v", name, i, err)
		case fails && len(tt.header) == 1 && strings.Contains(err.Error(), strings.TrimPrefix(tt.header[0], "Bearer ")):
			t.Errorf("%s: quotes the token: %v", name, err)
		}
	}
	i, err := a.Authenticate(local("Bearer " + good))
	if err != nil || !i.Allows("shop", "x") || !i.Allows("crm", "orders") || i.Allows("crm", "x") || i.MaxSubscriptions != 7 || i.EventsPerSecond != 8 || i.BytesPerSecond != 9 {
		t.Errorf("%+v, %v", i, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", i, i, i); strings.Contains(text, good) {
		t.Error("an identity that is printed shows its token")
	}
}

func TestRightsOfATokenAreReadToTheLetter(t *testing.T) {
	issuer := newIssuer(t)
	a := newAuthenticator(t, issuer.config())
	for text, want := range map[string]string{
		`{}`:                                  "no namespace",
		`[]`:                                  "not an object",
		`null`:                                "not an object",
		`"*"`:                                 "not an object",
		`{"namespaces":[]}`:                   "no namespace",
		`{"namespaces":"*"}`:                  "must be a list",
		`{"namespaces":[1]}`:                  "list of strings",
		`{"namespaces":["shop"]}`:             "must be db.coll",
		`{"namespaces":["*"],"max_subs":1}`:   "unknown key",
		`{"NAMESPACES":["*"]}`:                "unknown key",
		`{"namespaces":["*"],"name":"admin"}`: "unknown key",
		`{"namespaces":["*"],"max_subscriptions":-1}`:   "whole number",
		`{"namespaces":["*"],"max_subscriptions":1.5}`:  "whole number",
		`{"namespaces":["*"],"max_subscriptions":"1"}`:  "whole number",
		`{"namespaces":["*"],"bytes_per_second":1e300}`: "whole number",
		`{"namespaces":["*"],"bytes_per_second":null}`:  "whole number",
	} {
		if i, err := a.Authenticate(local("Bearer " + issuer.sign(t, time.Now().Add(time.Hour), text))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", text, i, err)
		}
	}
}

// TestConnectionEndsWithItsRight lets each kind of right end while a connection is held.
func TestConnectionEndsWithItsRight(t *testing.T) {
	const recheck = 10 * time.Second
	tests := map[string]struct {
		after  time.Duration // how long the token is good; 0: an hour
		spoil  func(t *testing.T, identities string, issuer *issuer)
		listed bool
		want   string        // what is wrong, "" where it must hold
		within time.Duration // how soon it ends
	}{
		"the token expires": {after: 5 * time.Second, want: "expired", within: 35*time.Second + time.Millisecond}, // with the leeway
		"the token is taken out": {listed: true, spoil: func(t *testing.T, path string, _ *issuer) {
			write(t, path, tokenLine("other", "name=other namespace=*"))
		}, want: "not a JWT", within: recheck},
		"the rights change": {listed: true, spoil: func(t *testing.T, path string, _ *issuer) {
			write(t, path, tokenLine("listed", "name=a namespace=shop.orders"))
		}, want: "have changed", within: recheck},
		"a limit changes": {listed: true, spoil: func(t *testing.T, path string, _ *issuer) {
			write(t, path, tokenLine("listed", "name=a namespace=* max_subscriptions=1"))
		}, want: "have changed", within: recheck},
		"the key is taken out": {spoil: func(t *testing.T, _ string, i *issuer) { i.rotate(t, "another") }, want: "not signed", within: recheck},
		"another token is added": {listed: true, spoil: func(t *testing.T, path string, _ *issuer) {
			write(t, path, tokenLine("listed", "name=a namespace=*")+tokenLine("x", "name=x namespace=*"))
		}},
		"the file cannot be used": {listed: true, spoil: func(t *testing.T, path string, _ *issuer) { write(t, path, "token nonsense") }},
		"nothing changes":         {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				issuer := newIssuer(t)
				cfg := issuer.config()
				cfg.Recheck = recheck
				cfg.Identities = write(t, t.TempDir()+"/identities", tokenLine("listed", "name=a namespace=*"))
				a := newAuthenticator(t, cfg)
				token := "listed"
				if !tt.listed {
					good := tt.after
					if good == 0 {
						good = time.Hour
					}
					token = issuer.sign(t, time.Now().Add(good), rights)
				}
				i, err := a.Authenticate(local("Bearer " + token))
				if err != nil {
					t.Fatal(err)
				}
				ctx, release := a.Hold(t.Context(), i)
				defer release()
				start := time.Now()
				if tt.spoil != nil {
					tt.spoil(t, cfg.Identities, issuer)
				}
				watched, cancel := context.WithTimeout(ctx, 10*time.Minute)
				defer cancel()
				<-watched.Done()
				switch took, cause := time.Since(start), context.Cause(ctx); {
				case tt.want == "" && cause != nil:
					t.Error(cause)
				case tt.want != "" && (fault.Of(cause) != fault.AccessUnauthenticated || !strings.Contains(cause.Error(), tt.want) || took > tt.within):
					t.Errorf("after %s: %v", took, cause)
				}
			})
		})
	}
}

func TestHeldConnectionEndsWithItsContextAndItsRelease(t *testing.T) {
	a := newAuthenticator(t, access.Config{Identities: write(t, t.TempDir()+"/i", tokenLine("x", "name=a namespace=*"))})
	i, err := a.Authenticate(local("Bearer x"))
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	outer, end := context.WithCancelCause(t.Context())
	ctx, release := a.Hold(outer, i)
	end(gone)
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), gone) {
		t.Error(context.Cause(ctx))
	}
	release()
	ctx, release = a.Hold(t.Context(), i)
	release()
	<-ctx.Done()
	anybody, release := newAuthenticator(t, access.Config{}).Hold(t.Context(), &access.Identity{})
	defer release()
	if anybody.Err() != nil {
		t.Error(anybody.Err())
	}
}

func TestCertificateThatExpiresEndsItsConnection(t *testing.T) {
	ca := newAuthority(t)
	state := verified(t, ca, "gw-1")
	leaf := *state.VerifiedChains[0][0]
	synctest.Test(t, func(t *testing.T) {
		leaf.NotAfter = time.Now().Add(time.Minute)
		state := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{&leaf}}}
		a := newAuthenticator(t, access.Config{
			TLS:        access.TLSConfig{Certificate: "unread", Key: "unread", ClientCA: "unread"},
			Identities: write(t, t.TempDir()+"/i", "subject CN=gw-1 name=a namespace=*"),
		})
		i, err := a.Authenticate(access.Peer{TLS: state})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ctx, release := a.Hold(t.Context(), i)
		defer release()
		<-ctx.Done()
		if took := time.Since(start); took > time.Minute+time.Second || !strings.Contains(context.Cause(ctx).Error(), "expired") {
			t.Errorf("after %s: %v", took, context.Cause(ctx))
		}
		if _, err := a.Authenticate(access.Peer{TLS: state}); fault.Of(err) != fault.AccessUnauthenticated {
			t.Error(err)
		}
	})
}

func TestConfigThatContradictsItselfIsRefused(t *testing.T) {
	tests := map[string]struct {
		cfg  access.Config
		want fault.Code
	}{
		"certificate without key":    {access.Config{TLS: access.TLSConfig{Certificate: "c"}}, fault.ConfigConflict},
		"key without certificate":    {access.Config{TLS: access.TLSConfig{Key: "c"}}, fault.ConfigConflict},
		"authorities without TLS":    {access.Config{TLS: access.TLSConfig{ClientCA: "c"}}, fault.ConfigConflict},
		"optional without authority": {access.Config{TLS: access.TLSConfig{Certificate: "c", Key: "c", ClientOptional: true}}, fault.ConfigConflict},
		"keys without issuer":        {access.Config{JWKS: "k", Audiences: []string{"a"}}, fault.ConfigConflict},
		"keys without audience":      {access.Config{JWKS: "k", Issuer: "i"}, fault.ConfigConflict},
		"issuer without keys":        {access.Config{Issuer: "i"}, fault.ConfigConflict},
		"empty audience":             {access.Config{JWKS: "k", Issuer: "i", Audiences: []string{""}}, fault.ConfigBadValue},
		"leeway below zero":          {access.Config{Leeway: -1}, fault.ConfigBadValue},
		"leeway that lets all pass":  {access.Config{Leeway: time.Hour}, fault.ConfigBadValue},
		"recheck below zero":         {access.Config{Recheck: -1}, fault.ConfigBadValue},
		"no file of identities":      {access.Config{Identities: "/nowhere"}, fault.AccessBadFile},
		"no file of keys":            {access.Config{JWKS: "/nowhere", Issuer: "i", Audiences: []string{"a"}}, fault.AccessBadFile},
	}
	for name, tt := range tests {
		if a, err := access.New(tt.cfg); a != nil || fault.Of(err) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
