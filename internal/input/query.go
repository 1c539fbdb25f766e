package input

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/mongostream/streamer/fault"
)

// parameters is the table for requests over HTTP: the query parameters and the parts of paths that
// a client chooses. A name means the same in all requests.
func parameters() map[string]Bound {
	qualified := Bound{Kind: Name, Bytes: 2 * MaxName} // with its identity
	target := Bound{Kind: Text, Bytes: 16 << 10}       // a resume token has the key of its document
	return map[string]Bound{
		"channel":               {Kind: Name, Bytes: 32, Count: 64},
		"coll":                  namespace,
		"db":                    namespace,
		"do":                    word,
		"end":                   word,
		"filter":                expression,
		"for":                   word,
		"fresh":                 word,
		"from":                  {Kind: Name, Bytes: 4 << 10, Code: fault.SessionBadPosition}, // what a page says as next
		"id":                    {Kind: Text, Bytes: 16 << 10},                                // of a document
		LastEventID:             eventID,
		"leaves":                word,
		"limit":                 number,
		"name":                  named,
		"namespace":             {Kind: Text, Bytes: 255},
		"node":                  named,
		"on_loss":               word,
		"op":                    operations,
		"operation":             word,
		"partition":             number,
		"slug":                  {Kind: Name, Bytes: 2 * MaxName},
		"start":                 word,
		"subscriber":            stored,
		"subscription":          named,
		"to":                    named,
		"_":                     word, // and of the other polyfills
		"evs_buffer_size_limit": word,
		"evs_preamble":          word,
		"padding":               word,
		"r":                     word,
		"POST /v1/subscribers/snapshots subscriber": qualified,
		"GET /v1/subscribers/detail subscriber":     qualified,
		"GET /v1/subscribers/rewind subscriber":     qualified,
		"POST /v1/subscribers/rewind subscriber":    qualified,
		"POST /v1/subscribers/delete subscriber":    qualified,
		"GET /v1/history subscriber":                qualified,
		"GET /v1/subscribers/rewind to":             target,
		"POST /v1/subscribers/rewind to":            target,
	}
}

// polyfills are parameters that libraries for event streams add by themselves
// (eventsource-polyfill, old versions of event-source-polyfill, and cache busters). Every event
// stream accepts them, and they change nothing.
func polyfills() []string {
	return []string{"_", "evs_buffer_size_limit", "evs_preamble", "padding", "r"}
}

// LastEventID is the header with which a client of an event stream resumes, or the parameter if it
// cannot set headers.
const LastEventID = "Last-Event-ID"

// Query returns the parameters of a request, and refuses all parameters that are not in names. The
// error is a fault, and contains at most the name of a parameter, never a value. A parameter that
// is not a list has exactly one value.
func Query(r *http.Request, names ...string) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fault.Newf(fault.SessionBadRequest, "the query is malformed: use &, and %% with two digits")
	}
	table := parameters()
	stream := slices.Contains(names, LastEventID)
	for asked, values := range query {
		name := asked
		if isLastEventID(asked) {
			name = LastEventID
		}
		bound, known := table[r.Pattern+" "+name]
		if !known {
			bound, known = table[name]
		}
		added := stream && slices.Contains(polyfills(), name)
		if !known || !added && !slices.Contains(names, name) {
			return nil, fault.Newf(fault.SessionBadRequest, "unknown parameter %.64q: %s", asked, usable(names))
		}
		if len(values) > max(bound.Count, 1) {
			return nil, fault.Newf(fault.SessionBadRequest, "parameter %s is given %d times", name, len(values))
		}
		for _, value := range values {
			if err := bound.check("parameter "+name, []byte(value)); err != nil {
				return nil, err
			}
		}
	}
	return query, nil
}

// usable returns the list of valid parameters, as text.
func usable(names []string) string {
	if len(names) == 0 {
		return "there are none"
	}
	return "use " + strings.Join(names, ", ")
}

// Resumes returns the id after which a client of an event stream resumes, "" if it starts anew. The
// id is in the header or, for clients that cannot set headers, in the parameter.
func Resumes(r *http.Request, query url.Values) (id string, err error) {
	headers := r.Header.Values(LastEventID)
	if len(headers) > 1 {
		return "", fault.Newf(fault.SessionBadPosition, "the header %s is given %d times", LastEventID, len(headers))
	}
	if len(headers) == 1 && headers[0] != "" {
		return headers[0], eventID.check(LastEventID, []byte(headers[0]))
	}
	for name, values := range query {
		if isLastEventID(name) && values[0] != "" {
			if id != "" && id != values[0] {
				return "", fault.Newf(fault.SessionBadPosition, "two different parameters say where to resume")
			}
			id = values[0]
		}
	}
	return id, nil
}

// isLastEventID reports whether a parameter has the name of the header, in any spelling that
// clients use.
func isLastEventID(name string) bool {
	name = strings.TrimPrefix(name, "evs_") // of eventsource-polyfill
	return strings.EqualFold(strings.ReplaceAll(strings.ReplaceAll(name, "-", ""), "_", ""), "lasteventid")
}

// CheckPath checks the parts of a request's path that a client chooses, as Query checks parameters.
func CheckPath(r *http.Request) error {
	table := parameters()
	for _, match := range wildcards.FindAllStringSubmatch(r.Pattern, -1) {
		bound, known := table[match[1]]
		if !known {
			return unknown("the path")
		}
		if err := bound.check(match[1]+" in the path", []byte(r.PathValue(match[1]))); err != nil {
			return err
		}
	}
	return nil
}

// wildcards are the parts of a pattern of http.ServeMux that a client chooses.
var wildcards = regexp.MustCompile(`\{([a-z_]+)(?:\.\.\.)?\}`)

// Reason returns why a request was not answered: err, unless its context had ended and err, of a
// driver or a store, only says so in other words. The cause of the end is a fault if the node ended
// it. Otherwise the client has closed its side of the connection, and waits for the answer at most
// with the other one, as net/http and most proxies see it. Without err it returns why the context
// has ended, nil if it has not.
func Reason(ctx context.Context, err error) error {
	if ctx.Err() == nil || fault.IsPublic(err) {
		return err
	}
	cause := context.Cause(ctx)
	switch {
	case fault.Of(cause) != "":
		return cause
	case errors.Is(cause, context.Canceled):
		return fault.Newf(fault.SessionBadRequest, "the client has closed its side of the connection: leave it open until the answer has ended")
	}
	return cmp.Or(err, cause)
}
