package gateway

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/input"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/streamer"
)

// Documents of a page of /v1/snapshot.
const (
	usualPage = 500
	maxPage   = 5000
)

// Pages serves GET /v1/snapshot: the documents of a collection as JSON, page by page, for clients
// that keep their own progress, as sync engines do. Parameters: db, coll, filter (CEL), limit
// (500), and from, the next of the page before. When a page has no next, /v1/events continues
// without a gap at its position, as Last-Event-ID. 410 says that the client must start over,
// without from.
type Pages struct {
	cfg  EventsConfig
	node *streamer.Node
	h    *Events
}

// NewPages returns the handler. Of the configuration it uses Cluster, Carries, Accounts
// and Logger. It counts the requests of identities itself.
func NewPages(cfg EventsConfig, node *streamer.Node) *Pages {
	return &Pages{cfg: cfg, node: node, h: NewEvents(EventsConfig{Logger: cfg.Logger}, node)}
}

// A pageBody is the answer.
type pageBody struct {
	Documents []json.RawMessage `json:"documents"`
	// Keys are those of the documents, as changes of them have.
	Keys []string `json:"keys"`
	// Next is from of the next page; it is missing if there is none.
	Next string `json:"next,omitempty"`
	// Position is the id of an event of /v1/events before everything that the pages do not show.
	Position string `json:"position"`
	// Missing says, for people, that there is no such collection yet.
	Missing string `json:"missing,omitempty"`
}

// ServeHTTP implements http.Handler.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body *pageBody
	account, err := openAccount(p.cfg.Accounts, r, access.Request)
	if err == nil {
		defer account.Close()
		body, err = p.serve(r, account)
	}
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(body) // the client may have gone
	case fault.Of(err) == fault.LogHistoryLost, fault.Of(err) == fault.LogAhead:
		access.Refuse(w, http.StatusGone, err)
	default:
		holdBack(r.Context(), p.cfg.Accounts, err)
		p.h.refuse(w, r, input.Reason(r.Context(), err))
	}
}

// parsePages reads a request, without its program.
func parsePages(r *http.Request) (f match.Filter, request delivery.PageRequest, err error) {
	q, err := input.Query(r, "db", "coll", "filter", "limit", "from")
	if err != nil {
		return f, request, err
	}
	f = match.Filter{DB: q.Get("db"), Coll: q.Get("coll"), Source: q.Get("filter")}
	request = delivery.PageRequest{Namespace: change.Namespace{DB: f.DB, Coll: f.Coll}, Documents: usualPage}
	if f.DB == "" || f.Coll == "" {
		return f, request, fault.Newf(fault.SessionBadRequest, "parameters db and coll: required")
	}
	if text := q.Get("limit"); text != "" {
		if request.Documents, err = strconv.Atoi(text); err != nil || request.Documents < 1 || request.Documents > maxPage {
			return f, request, fault.Newf(fault.SessionBadRequest, "parameter limit: 1 to %d", maxPage)
		}
	}
	if text := q.Get("from"); text != "" {
		p, err := parsePlace(text)
		if err != nil {
			return f, request, fault.Newf(fault.SessionBadPosition, "parameter from: %w", err)
		}
		request.At, request.From, request.FromHash = p.at, p.from, p.hash
	}
	return f, request, nil
}

func (p *Pages) serve(r *http.Request, account *access.Account) (*pageBody, error) {
	f, request, err := parsePages(r)
	if err != nil {
		return nil, err
	}
	if err := access.From(r.Context()).Permit(f.DB, f.Coll); err != nil {
		return nil, err
	}
	f.Carries = p.cfg.Carries
	request.Account = account.Key()
	var missing string
	if request.Program, missing, err = p.node.Hub().Compile(r.Context(), account.Key(), f, nil); err != nil {
		return nil, err
	}
	page, err := p.node.Hub().Page(r.Context(), request)
	if err != nil {
		return nil, err
	}
	body := &pageBody{Missing: missing, Documents: make([]json.RawMessage, len(page.Documents)), Keys: append([]string{}, page.Keys...), Position: string(change.At(page.At).Ref().AppendText(nil, p.cfg.Cluster))}
	for i, d := range page.Documents {
		body.Documents[i] = d
	}
	if !page.Next.IsZero() {
		body.Next = placeText(page.At, page.Next)
	}
	return body, nil
}

// inlineKey is how long an _id may be, in bytes, to be in the text of a place whole. A longer one
// is there as a hash, and a value before it at which the search for it begins, so that a text is
// short whatever the documents are and the node remembers nothing.
const inlineKey = 1 << 10

// placeHash follows the time in a text that has a hash; it is no type of BSON that an _id may have.
const placeHash = 0

// A place is where a page begins.
type place struct {
	at   change.Timestamp // the time of the first page
	from change.Value
	hash []byte // of the _id at which the page begins, where from is before it; nil if it is from
}

// placeText returns the text of the place at an _id.
func placeText(at change.Timestamp, from change.Value) string {
	b := binary.BigEndian.AppendUint32(nil, at.T)
	b = binary.BigEndian.AppendUint32(b, at.I)
	if len(from.Data) > inlineKey {
		b = append(append(b, placeHash), change.KeyHash(from)...)
		from = change.Before(from, inlineKey)
	}
	return base64.RawURLEncoding.EncodeToString(append(append(b, from.Type), from.Data...))
}

// parsePlace decodes the output of placeText.
func parsePlace(text string) (p place, err error) {
	none := errors.New("not a place in a snapshot")
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 9 {
		return p, none
	}
	p.at = change.Timestamp{T: binary.BigEndian.Uint32(b), I: binary.BigEndian.Uint32(b[4:])}
	if b = b[8:]; b[0] == placeHash {
		if len(b) < 1+change.KeyHashSize+1 {
			return p, none
		}
		p.hash, b = b[1:1+change.KeyHashSize], b[1+change.KeyHashSize:]
	}
	p.from = change.Value{Type: b[0], Data: b[1:]}
	if doc := change.WrapDocument(change.AppendElement(nil, p.from.Type, "_id", p.from.Data)); p.at.IsZero() || !change.IDOf(doc).Equal(p.from) {
		return p, none
	}
	return p, nil
}
