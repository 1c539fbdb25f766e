package devmongo

import (
	"context"
	"crypto/md5" //nolint:gosec // the protocol of drivers
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/xdg-go/scram"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// External is the database of users who show a certificate.
const External = "$external"

// A User may authenticate with a password by SCRAM-SHA-256 or SCRAM-SHA-1, or, where DB is
// External, with a client certificate whose subject is the name.
type User struct {
	Name       string
	DB         string // defaults to admin
	Password   string
	Privileges []Privilege
}

// An account is the present state of a user. It does not change; a new one replaces it.
type account struct {
	User

	id           int                                // of the user; one that is removed and made again has another
	credentials  map[string]scram.StoredCredentials // by mechanism
	certificates bool
}

// users are those of a server. It is safe for concurrent use.
type users struct {
	mu  sync.Mutex
	all map[[2]string]*account // by database and name
	ids int
}

// The mechanisms; the driver uses the first one that a user has.
const (
	scramSHA1   = "SCRAM-SHA-1"
	scramSHA256 = "SCRAM-SHA-256"
	x509        = "MONGODB-X509"
)

// iterations is how often a password is hashed: as rarely as drivers allow.
const iterations = 4096

// newAccount hashes the password of a user.
func newAccount(u User) (*account, error) {
	a := &account{User: u, credentials: map[string]scram.StoredCredentials{}}
	if a.DB == "" {
		a.DB = "admin"
	}
	switch {
	case u.Name == "":
		return nil, fmt.Errorf("a user has no name")
	case a.DB == External:
		a.certificates = true
		return a, nil
	case u.Password == "":
		return nil, fmt.Errorf("user %s has no password", u.Name)
	}
	digest := md5.Sum([]byte(u.Name + ":mongo:" + u.Password)) //nolint:gosec // as drivers have it for SCRAM-SHA-1
	sha1, err := scram.SHA1.NewClientUnprepped(u.Name, hex.EncodeToString(digest[:]), "")
	if err != nil {
		return nil, err
	}
	sha256, err := scram.SHA256.NewClient(u.Name, u.Password, "")
	if err != nil {
		return nil, err
	}
	for mechanism, client := range map[string]*scram.Client{scramSHA1: sha1, scramSHA256: sha256} {
		if a.credentials[mechanism], err = client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: rand.Text(), Iters: iterations}); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// set makes a user, or changes the password and the privileges of one.
func (u *users) set(user User) error {
	a, err := newAccount(user)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	key := [2]string{a.DB, a.Name}
	if before := u.all[key]; before != nil {
		a.id = before.id
	} else {
		u.ids++
		a.id = u.ids
	}
	if u.all == nil {
		u.all = map[[2]string]*account{}
	}
	u.all[key] = a
	return nil
}

func (u *users) find(db, name string) *account {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all[[2]string{db, name}]
}

// of returns the user of a connection as it is now, nil where there is none, or no longer.
func (u *users) of(c *client) *account {
	if c.login.user == nil {
		return nil
	}
	now := u.find(c.login.user.DB, c.login.user.Name)
	if now == nil || now.id != c.login.user.id {
		return nil
	}
	return now
}

// SetUser makes a user, or changes the password and the privileges of one. Connections that are
// open keep their user, with the new privileges.
func (s *Server) SetUser(u User) error { return s.users.set(u) }

// RemoveUser removes a user, also from the connections that are open.
func (s *Server) RemoveUser(db, name string) {
	s.users.mu.Lock()
	defer s.users.mu.Unlock()
	delete(s.users.all, [2]string{db, name})
}

// A login is how far a connection has got with authentication.
type login struct {
	user         *account // the authenticated user
	conversation *scram.ServerConversation
	db           string
	id           int32
	exchange     bool // the client wants an empty exchange at the end
}

func errAuthentication() error {
	return wire.Errorf(wire.AuthenticationFailed, "Authentication failed.")
}

func runSaslStart(_ context.Context, r *request, b *doc.Builder) error {
	return r.client.login.start(r.users, r.db, r.body, b)
}

// start begins to authenticate, and appends the first answer.
func (l *login) start(all *users, db string, command bsoncore.Document, b *doc.Builder) error {
	field, _ := doc.Field(command, "mechanism")
	mechanism, _ := field.StringValueOK()
	hash := map[string]scram.HashGeneratorFcn{scramSHA1: scram.SHA1, scramSHA256: scram.SHA256}[mechanism]
	if hash == nil {
		return wire.Errorf(wire.MechanismUnavailable, "Received authentication for mechanism %s which is not enabled", mechanism)
	}
	server, err := hash.NewServer(func(name string) (scram.StoredCredentials, error) {
		a := all.find(db, name)
		if a == nil || a.certificates {
			return scram.StoredCredentials{}, errAuthentication()
		}
		return a.credentials[mechanism], nil
	})
	if err != nil {
		return err
	}
	skips, _ := doc.Path(command, "options.skipEmptyExchange")
	*l = login{conversation: server.NewConversation(), db: db, id: l.id + 1, exchange: !doc.Truth(skips)}
	return l.step(all, command, b)
}

func runSaslContinue(_ context.Context, r *request, b *doc.Builder) error {
	l := &r.client.login
	if id, ok := r.int("conversationId"); l.conversation == nil || !ok || int32(id) != l.id {
		return wire.Errorf(wire.ProtocolError, "No SASL session state found")
	}
	return l.step(r.users, r.body, b)
}

// step takes one message of the client and appends the answer.
func (l *login) step(all *users, command bsoncore.Document, b *doc.Builder) error {
	field, _ := doc.Field(command, "payload")
	_, payload, _ := field.BinaryOK()
	if l.user != nil { // the empty exchange
		b.Int32("conversationId", l.id).Bool("done", true).Binary("payload", 0, nil)
		l.conversation = nil
		return nil
	}
	answer, err := l.conversation.Step(string(payload))
	if err != nil {
		*l = login{id: l.id}
		return errAuthentication()
	}
	if l.conversation.Valid() {
		l.user = all.find(l.db, l.conversation.Username())
	}
	done := l.user != nil && !l.exchange
	b.Int32("conversationId", l.id).Bool("done", done).Binary("payload", 0, []byte(answer))
	return nil
}

func runAuthenticate(_ context.Context, r *request, b *doc.Builder) error {
	return r.client.login.certificate(r.users, r.client, r.body, b)
}

// certificate authenticates by the certificate that the client has shown.
func (l *login) certificate(all *users, c *client, command bsoncore.Document, b *doc.Builder) error {
	field, _ := doc.Field(command, "mechanism")
	if mechanism, _ := field.StringValueOK(); mechanism != x509 {
		return wire.Errorf(wire.MechanismUnavailable, "Received authentication for mechanism %s which is not enabled", mechanism)
	}
	subject := c.subject()
	field, given := doc.Field(command, "user")
	name, _ := field.StringValueOK()
	a := all.find(External, subject)
	isOther := given && name != subject
	if subject == "" || a == nil || isOther {
		*l = login{id: l.id}
		return errAuthentication()
	}
	*l = login{id: l.id, user: a}
	b.String("dbname", External).String("user", subject)
	return nil
}

// subject returns the subject of the certificate that the client has shown, empty where there is
// none.
func (c *client) subject() string {
	secure, ok := c.net.(*tls.Conn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return ""
	}
	return secure.ConnectionState().PeerCertificates[0].Subject.String()
}

func runLogout(_ context.Context, r *request, _ *doc.Builder) error {
	r.client.login = login{id: r.client.login.id}
	return nil
}

// introduce appends the authentication part to the reply to a hello: the mechanisms of a user, and
// the reply to a first authentication message, if the hello contains one. A refused message gets no
// reply there; the client gets the error when it sends the message again.
func (r *request) introduce(b *doc.Builder) {
	if len(r.config.Users) == 0 {
		return
	}
	if asked, ok := doc.Field(r.body, "saslSupportedMechs"); ok {
		text, _ := asked.StringValueOK()
		for _, a := range r.users.named(text) {
			if !a.certificates {
				b.Strings("saslSupportedMechs", scramSHA1, scramSHA256)
			}
		}
	}
	first, err := r.document("speculativeAuthenticate")
	if err != nil || first == nil {
		return
	}
	answer := doc.New()
	name, _, _ := doc.First(first)
	field, _ := doc.Field(first, "db")
	db, _ := field.StringValueOK()
	if name == "saslStart" {
		err = r.client.login.start(r.users, db, first, answer)
	} else {
		err = r.client.login.certificate(r.users, r.client, first, answer)
	}
	if err == nil {
		b.Doc("speculativeAuthenticate", answer.Document())
	}
}

// named returns the user of a name as database.user, none where there is none.
func (u *users) named(text string) []*account {
	u.mu.Lock()
	defer u.mu.Unlock()
	var found []*account
	for key, a := range u.all {
		if key[0]+"."+key[1] == text {
			found = append(found, a)
		}
	}
	return found
}

// knows appends the authenticated user to a connectionStatus.
func (r *request) knows(b *doc.Builder) {
	b.OpenArray("authenticatedUsers")
	if a := r.users.of(r.client); a != nil {
		b.Open("0").String("user", a.Name).String("db", a.DB).End()
	}
	b.End()
}

// streams reports whether a cursor is a change stream's.
func (r *cursorRegistry) streams(id int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[id] != nil && r.open[id].stream
}

// validateUsers reports errors in the users of a configuration.
func validateUsers(all []User) error {
	for i, u := range all {
		if _, err := newAccount(u); err != nil {
			return err
		}
		if slices.ContainsFunc(all[:i], func(v User) bool { return v.Name == u.Name && v.DB == u.DB }) {
			return fmt.Errorf("user %s is there twice", u.Name)
		}
	}
	return nil
}
