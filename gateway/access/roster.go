package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A roster is the parsed file of identities.
type roster struct {
	tokens   []listed
	subjects map[subjectAt]*Identity
	apart    bool // as Config.Apart
}

// A subjectAt is a client certificate's subject at a server; "" is every server.
type subjectAt struct{ listener, subject string }

// A listed is a token, known only by its hash.
type listed struct {
	hash     [sha256.Size]byte
	identity *Identity
}

// maxListed bounds the file of identities, because a token is compared with all of them.
const maxListed = 10_000

// Hash returns the form of a token in the file of identities.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

const hashPrefix = "sha256:"

// byToken returns the identity of a token, or nil. It takes constant time: all hashes are compared.
func (r *roster) byToken(token string) *Identity {
	sum := sha256.Sum256([]byte(token))
	found := -1
	for n := range r.tokens {
		equal := subtle.ConstantTimeCompare(sum[:], r.tokens[n].hash[:])
		found = subtle.ConstantTimeSelect(equal, n, found)
	}
	if found < 0 {
		return nil
	}
	return r.tokens[found].identity
}

// bySubject returns the identity of a client certificate's subject, or nil. A subject is not
// secret.
func (r *roster) bySubject(listener, subject string, expires time.Time) *Identity {
	listed := r.subjects[subjectAt{listener, subject}]
	if listed == nil {
		listed = r.subjects[subjectAt{"", subject}]
	}
	if listed == nil {
		return nil
	}
	i := *listed
	i.Expires = expires
	return &i
}

var errNeedsClientCA = errors.New("a subject requires a client CA")

// rosterParser returns the parser for files of identities; certificates says whether client
// certificates are requested, apart is Config.Apart.
func rosterParser(certificates, apart bool) func([][]byte) (*roster, error) {
	return func(contents [][]byte) (*roster, error) { return parseRoster(string(contents[0]), certificates, apart) }
}

// parseRoster parses a file of identities. Errors name the line and contain nothing but names,
// because a token may have been written instead of its hash.
func parseRoster(text string, certificates, apart bool) (*roster, error) {
	r := &roster{subjects: map[subjectAt]*Identity{}, apart: apart}
	named := map[string]*Identity{}
	hashes := map[[sha256.Size]byte]bool{}
	if !utf8.ValidString(text) {
		return nil, errors.New("not UTF-8")
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		words, err := split(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if len(words) == 0 {
			continue
		}
		if err := r.add(words, named, hashes, certificates); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if len(hashes)+len(r.subjects) > maxListed {
			return nil, fmt.Errorf("line %d: more than %d identities", number, maxListed)
		}
	}
	if len(r.tokens)+len(r.subjects) == 0 {
		return nil, errors.New("no identity is listed, so nobody could connect")
	}
	return r, nil
}

// add parses a line: credentials and rights.
func (r *roster) add(words []string, named map[string]*Identity, hashes map[[sha256.Size]byte]bool, certificates bool) error {
	if len(words) < 2 {
		return errors.New("must begin with token sha256:…, or subject \"…\"")
	}
	listener, rights, err := cutListener(words[0], words[2:])
	if err != nil {
		return err
	}
	i, err := readListed(rights)
	if err != nil {
		return err
	}
	if before := named[i.Name]; before != nil && !before.sameRights(i) {
		return fmt.Errorf("%q has other rights than on an earlier line: all tokens and subjects with one name must have the same rights", i.Name)
	}
	named[i.Name] = i
	switch proof := words[1]; words[0] {
	case "token":
		digits, ok := strings.CutPrefix(proof, hashPrefix)
		sum, err := hex.DecodeString(digits)
		if !ok || err != nil || len(sum) != sha256.Size {
			return errors.New("a token is written as sha256: and 64 hexadecimal digits of its hash")
		}
		hash := [sha256.Size]byte(sum)
		if hashes[hash] {
			return errors.New("duplicate token")
		}
		hashes[hash] = true
		r.tokens = append(r.tokens, listed{hash: hash, identity: i})
	case "subject":
		switch {
		case !certificates:
			return errNeedsClientCA
		case proof == "":
			return errors.New("the subject is empty")
		}
		at := subjectAt{listener, proof}
		if r.apart && listener == "" {
			at.listener = GRPC
		}
		if r.subjects[at] != nil {
			return errors.New("duplicate subject")
		}
		r.subjects[at] = i
	default:
		return errors.New("must begin with token or subject")
	}
	return nil
}

// cutListener takes the word listener=, which only a subject may have, out of the words after a
// credential of a kind.
func cutListener(kind string, words []string) (listener string, rest []string, err error) {
	for _, word := range words {
		value, is := strings.CutPrefix(word, "listener=")
		switch {
		case !is:
			rest = append(rest, word)
		case kind != "subject":
			return "", nil, errors.New("only a subject can have listener=")
		case listener != "":
			return "", nil, errors.New("duplicate \"listener\"")
		case value != GRPC && value != HTTP:
			return "", nil, errors.New("listener must be grpc or http")
		default:
			listener = value
		}
	}
	return listener, rest, nil
}

// readListed parses the name and rights: key=value; only namespace may be repeated.
func readListed(words []string) (*Identity, error) {
	i := &Identity{}
	seen := map[string]bool{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return nil, errors.New("after the token or subject everything must be key=value")
		}
		if seen[name] && name != "namespace" {
			return nil, fmt.Errorf("duplicate %.64q", name)
		}
		seen[name] = true
		limit := i.limit(name)
		switch {
		case name == "name":
			i.Name = value
		case name == "namespace":
			i.Namespaces = append(i.Namespaces, value)
		case limit != nil:
			n, err := strconv.Atoi(value)
			if err != nil {
				return nil, fmt.Errorf("%s must be a whole number", name)
			}
			*limit = n
		default:
			names := []string{"name", "namespace"}
			for _, l := range i.limits() {
				names = append(names, l.name)
			}
			return nil, errors.New("unknown key: use " + strings.Join(names, ", "))
		}
	}
	i.key = "listed:" + i.Name
	return i, i.check()
}

// split separates a line at blanks. Double quotes group characters into a word; inside them \
// escapes quotes and backslashes. A # at the start of a word begins a comment.
func split(line string) (words []string, err error) {
	var word strings.Builder
	inWord, quoted, escaped := false, false, false
	for _, c := range strings.TrimRight(line, "\r\n") {
		switch {
		case c < ' ' && c != '\t' || c == 0x7f:
			return nil, errors.New("a control character")
		case escaped:
			word.WriteRune(c)
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
			inWord = true
		case !quoted && (c == ' ' || c == '\t'):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case !quoted && !inWord && c == '#':
			return words, nil
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quoted {
		return nil, errors.New("a double quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
