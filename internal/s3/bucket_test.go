package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/retention"
	"github.com/mongostream/streamer/retention/retentiontest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A double answers a bucket's requests from a store in memory, in the form of S3's documentation.
// It holds the requests against what the bucket must send. What real servers do, versity_test.go
// shows.
type double struct {
	t      *testing.T
	memory retentiontest.Memory
	// answer, if it returns true, has answered a request, or sent no answer.
	answer func(w http.ResponseWriter, r *http.Request) bool
	// lose cuts the connection instead of the answer to a request that was carried out.
	lose     func(r *http.Request) bool
	requests atomic.Int32
	url      string
	secret   string
}

func newDouble(t *testing.T) *double {
	t.Helper()
	d := &double{t: t, secret: "hunter2hunter2"}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	d.url = server.URL
	t.Setenv("AWS_ACCESS_KEY_ID", "somebody")
	t.Setenv("AWS_SECRET_ACCESS_KEY", d.secret)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return d
}

func (d *double) open() *Bucket {
	d.t.Helper()
	b, err := Open("s3://log/a/b?endpoint=" + d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = b.Close() })
	return b
}

// refuse answers with an error as S3 does.
func refuse(w http.ResponseWriter, status int, code, inside string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>because</Message>%s<RequestId>1</RequestId></Error>`, code, inside)
}

// ServeHTTP implements http.Handler.
func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.requests.Add(1)
	if d.answer != nil && d.answer(w, r) {
		return
	}
	if d.lose != nil && d.lose(r) {
		d.serve(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	d.serve(w, r)
}

func (d *double) serve(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256") || strings.Contains(fmt.Sprint(r.Header), d.secret) {
		d.t.Errorf("%s is signed with %q", r.Method, r.Header.Get("Authorization"))
	}
	key, inBucket := strings.CutPrefix(r.URL.Path, "/log/")
	switch {
	case !inBucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket", "")
	case r.Method == http.MethodGet && key == "":
		d.list(w, r)
	case r.Method == http.MethodPut:
		d.put(w, r, key)
	case r.Method == http.MethodDelete:
		_ = d.memory.Delete(r.Context(), key)
		w.WriteHeader(http.StatusNoContent)
	default:
		d.get(w, r, key)
	}
}

func (d *double) put(w http.ResponseWriter, r *http.Request, key string) {
	body, err := io.ReadAll(r.Body)
	sum := sha256.Sum256(body)
	version, replaces := strings.CutPrefix(r.Header.Get("If-Match"), `"`)
	if err != nil || replaces == (r.Header.Get("If-None-Match") == "*") || r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]) || len(r.URL.Query()) > 0 {
		d.t.Errorf("put of %d bytes %s: %v, %v", len(body), r.URL.RawQuery, r.Header, err)
	}
	if replaces {
		err = d.memory.Replace(r.Context(), key, body, strings.TrimSuffix(version, `"`))
	} else {
		err = d.memory.Put(r.Context(), key, body)
	}
	switch {
	case errors.Is(err, retention.ErrNotFound):
		refuse(w, http.StatusNotFound, "NoSuchKey", "<Key>"+key+"</Key>")
	case errors.Is(err, retention.ErrExists), errors.Is(err, retention.ErrChanged):
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "<Condition>If-None-Match</Condition>")
	}
}

func (d *double) get(w http.ResponseWriter, r *http.Request, key string) {
	data, about, err := d.memory.Get(r.Context(), key, 0, 1<<30)
	if err != nil {
		refuse(w, http.StatusNotFound, "NoSuchKey", "<Key>"+key+"</Key>")
		return
	}
	w.Header().Set("ETag", `"`+about.Version+`"`)
	if from, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"); from != "" {
		if offset, _ := strconv.Atoi(from); offset >= len(data) {
			refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "")
			return
		}
	}
	http.ServeContent(w, r, "", about.Modified, bytes.NewReader(data))
}

func (d *double) list(w http.ResponseWriter, r *http.Request) {
	type contents struct {
		Key          string
		LastModified string
		Size         int64
		ETag         string
	}
	type common struct{ Prefix string }
	var result struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		IsTruncated bool
		// The bucket continues from a name, and needs no token, but there must be one.
		NextContinuationToken string
		Contents              []contents
		CommonPrefixes        []common
	}
	q := r.URL.Query()
	prefix, most := q.Get("prefix"), 1000
	if n, err := strconv.Atoi(q.Get("max-keys")); err == nil {
		most = min(n, most)
	}
	if q.Get("list-type") != "2" || q.Get("delimiter") != "/" {
		d.t.Errorf("list with %s", r.URL.RawQuery)
	}
	for _, key := range d.memory.Keys() {
		name, within := strings.CutPrefix(key, prefix)
		if !within || key <= q.Get("start-after") {
			continue
		}
		if len(result.Contents) == most {
			result.IsTruncated, result.NextContinuationToken = true, "1"
			break
		}
		if folder, _, deeper := strings.Cut(name, "/"); deeper {
			if n := len(result.CommonPrefixes); n == 0 || result.CommonPrefixes[n-1].Prefix != prefix+folder+"/" {
				result.CommonPrefixes = append(result.CommonPrefixes, common{prefix + folder + "/"})
			}
			continue
		}
		_, about, _ := d.memory.Get(r.Context(), key, 0, 0)
		result.Contents = append(result.Contents, contents{Key: key, LastModified: about.Modified.UTC().Format("2006-01-02T15:04:05.000Z"), Size: about.Size, ETag: `"1"`})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(result)
}

func TestBucketIsAStore(t *testing.T) {
	retentiontest.TestStore(t, func(t *testing.T) retention.Store { return newDouble(t).open() })
}

// Each listing is one request, and the chains of a bucket are found.
func TestChainsOfABucketAreFound(t *testing.T) {
	d := newDouble(t)
	b := d.open()
	for _, key := range []string{"v1/s1/1/seg/1", "v1/s1/2/floor/1", "v1/s1/action/1", "v1/s2/7/seg/1", "v2/x/1/seg/1", "other"} {
		if err := b.Put(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := b.Chains(t.Context()); err != nil || fmt.Sprint(got) != "[v1/s1/1 v1/s2/7]" {
		t.Errorf("%v, %v", got, err)
	}
}

// requests sends each kind of request, and returns the errors.
func requests(t *testing.T, b *Bucket) map[string]error {
	t.Helper()
	_, _, get := b.Get(t.Context(), "seg/1", 0, 10)
	_, _, list := b.List(t.Context(), "seg", "")
	_, now := b.Now(t.Context())
	return map[string]error{"put": b.Put(t.Context(), "seg/1", []byte("x")), "get": get, "list": list, "now": now, "delete": b.Delete(t.Context(), "seg/1")}
}

// Whatever a store answers has a code, which says what to do; no text has the secret.
func TestAnswersOfStoresHaveCodes(t *testing.T) {
	d := newDouble(t)
	b := d.open()
	for _, c := range []struct {
		status       int
		code, inside string
		want         fault.Code
	}{
		{403, "AccessDenied", "", fault.RetentionForbidden},
		{403, "InvalidAccessKeyId", "<AWSAccessKeyId>x</AWSAccessKeyId>", fault.RetentionForbidden},
		{403, "SignatureDoesNotMatch", "<StringToSign>" + d.secret + "</StringToSign>", fault.RetentionForbidden},
		{400, "ExpiredToken", "", fault.RetentionForbidden},
		{401, "Unauthorized", "", fault.RetentionForbidden},
		{403, "AllAccessDisabled", "", fault.RetentionForbidden},
		{403, "RequestTimeTooSkewed", "<ServerTime>2026-01-01T00:00:00Z</ServerTime>", fault.RetentionClock},
		{404, "NoSuchBucket", "<BucketName>log</BucketName>", fault.RetentionBucket},
		{400, "InvalidBucketName", "", fault.RetentionBucket},
		{400, "AuthorizationHeaderMalformed", "<Region>eu-central-1</Region>", fault.RetentionRegion},
		{301, "PermanentRedirect", "<Endpoint>log.s3.eu-central-1.amazonaws.com</Endpoint>", fault.RetentionRegion},
		{307, "TemporaryRedirect", "", fault.RetentionRegion},
		{409, "ConditionalRequestConflict", "", fault.RetentionStore},
		{409, "OperationAborted", "", fault.RetentionStore},
		{503, "SlowDown", "", fault.RetentionStore},
		{500, "InternalError", "", fault.RetentionStore},
		{507, "QuotaExceeded", "", fault.RetentionStore},
		{405, "MethodNotAllowed", "", fault.RetentionStore},
	} {
		d.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, c.status, c.code, c.inside)
			return true
		}
		before := d.requests.Load()
		all := requests(t, b)
		for verb, err := range all {
			if got := fault.Of(err); got != c.want {
				t.Errorf("%s is answered with %d %s: %v", verb, c.status, c.code, err)
			} else if strings.Contains(err.Error(), d.secret) {
				t.Errorf("%s: the error shows the secret: %v", verb, err)
			}
		}
		if sent := d.requests.Load() - before; int(sent) != len(all) {
			t.Errorf("%d %s: %d requests were sent, of %d", c.status, c.code, sent, len(all))
		}
	}
	if err := requests(t, b)["get"]; !strings.Contains(err.Error(), "MethodNotAllowed") {
		t.Errorf("the answer is not shown: %v", err)
	}
}

// A store or a proxy that repeats the request in its error, as some do for people who look for the
// cause, has nothing of it shown that proves who sent it.
func TestErrorsDoNotRepeatCredentials(t *testing.T) {
	d := newDouble(t)
	const token = "Tk1somebody/+=token" // which has the name of the key in it
	t.Setenv("AWS_SESSION_TOKEN", token)
	b := d.open()
	for _, kind := range []string{"application/xml", "text/plain"} {
		var signature string
		d.answer = func(w http.ResponseWriter, r *http.Request) bool {
			header := r.Header.Get("Authorization")
			_, signature, _ = strings.Cut(header, "Signature=")
			if r.Header.Get("X-Amz-Security-Token") != token || len(signature) < 32 {
				t.Errorf("%v", r.Header)
			}
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(http.StatusForbidden)
			said := fmt.Sprintf("said %s, %s, of somebody: %s", r.Header.Get("X-Amz-Security-Token"), signature, header)
			if kind == "application/xml" {
				said = "<Error><Code>AccessDenied</Code><Message>" + said + "</Message></Error>"
			}
			_, _ = io.WriteString(w, said)
			return true
		}
		for verb, err := range requests(t, b) {
			if fault.Of(err) == "" {
				t.Errorf("%s: %v", verb, err)
				continue
			}
			for _, secret := range []string{token, signature, "somebody", "Credential="} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s, %s: the error shows %q: %v", kind, verb, secret, err)
				}
			}
		}
	}
}

// A proxy without a store behind it answers that nothing is there, or with a page. Neither says
// that an object does not exist, or what is in it.
func TestAProxyIsNoStore(t *testing.T) {
	d := newDouble(t)
	b := d.open()
	for _, c := range []struct {
		status  int
		kind    string
		chunked bool
	}{{404, "text/html", false}, {200, "text/html", false}, {206, "text/html", false}, {200, "TEXT/HTML; charset=utf-8", false}, {200, "text/html", true}, {200, "text/plain", true}} {
		d.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", c.kind)
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			if !c.chunked {
				w.Header().Set("Content-Length", "6")
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, "<html>")
			if c.chunked {
				_ = http.NewResponseController(w).Flush()
			}
			return true
		}
		_, _, get := b.Get(t.Context(), "seg/1", 0, 10)
		_, _, list := b.List(t.Context(), "seg", "")
		_, now := b.Now(t.Context())
		for verb, err := range map[string]error{"get": get, "list": list, "now": now} {
			if err == nil || errors.Is(err, retention.ErrNotFound) || fault.Of(err) == "" {
				t.Errorf("%+v to %s: %v", c, verb, err)
			}
		}
	}
}

// An answer with another range than the requested one, or with less of it, is none.
func TestAnotherRangeIsNoAnswer(t *testing.T) {
	d := newDouble(t)
	b := d.open()
	for name, c := range map[string]struct{ status, kind, length, body string }{
		"the whole object":        {"200", "", "9", "012345678"},
		"another range":           {"206", "bytes 0-3/9", "4", "0123"},
		"a longer one":            {"206", "bytes 4-8/9", "5", "45678"},
		"less than its length":    {"206", "bytes 4-7/9", "4", "45"},
		"a range of no length":    {"206", "bytes 4-7/*", "4", "4567"},
		"a range without numbers": {"206", "bytes x", "4", "4567"},
	} {
		d.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			if c.kind != "" {
				w.Header().Set("Content-Range", c.kind)
			}
			w.Header().Set("Content-Length", c.length)
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			status, _ := strconv.Atoi(c.status)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, c.body)
			return true
		}
		if got, _, err := b.Get(t.Context(), "seg/1", 4, 4); err == nil || errors.Is(err, retention.ErrNotFound) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// An answer that was lost is an error, and the request is not repeated: the caller must look what
// became of it. Repeated, it would be refused because of the object that it has made itself.
func TestLostAnswersAreErrors(t *testing.T) {
	d := newDouble(t)
	b := d.open()
	d.lose = func(r *http.Request) bool { return r.Method == http.MethodPut }
	err := b.Put(t.Context(), "seg/1", []byte("x"))
	if err == nil || errors.Is(err, retention.ErrExists) || d.requests.Load() != 1 {
		t.Errorf("%v, after %d requests", err, d.requests.Load())
	}
	if got, _, err := b.Get(t.Context(), "seg/1", 0, 9); string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

// A request ends with its context, and a canceled one is nobody's fault.
func TestRequestsEndWithTheirContexts(t *testing.T) {
	d := newDouble(t)
	b := d.open()
	asked, release := make(chan struct{}, 10), make(chan struct{})
	defer close(release)
	d.answer = func(http.ResponseWriter, *http.Request) bool {
		asked <- struct{}{}
		<-release
		return true
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Put(ctx, "seg/1", []byte("x")) }()
	<-asked
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || fault.Of(err) != "" {
		t.Errorf("%v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := b.List(ctx, "seg", ""); fault.Of(err) != fault.RetentionUnreachable {
		t.Errorf("a store that does not answer: %v", err)
	}
}

// A context that has ended is not the end of a folder: nothing may look as if there were nothing.
func TestListingsOfAnEndedContextAreErrors(t *testing.T) {
	d := newDouble(t)
	b := d.open()
	if err := b.Put(t.Context(), "v1/s1/1/seg/1", nil); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for name, ctx := range map[string]context.Context{"canceled": canceled, "late": late} {
		if _, _, err := b.List(ctx, "v1/s1/1/seg", ""); !errors.Is(err, ctx.Err()) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := b.Chains(ctx); !errors.Is(err, ctx.Err()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nobody is asked without credentials. A file with some is read when it is there, and when it has
// others.
func TestCredentialsAreReadAgain(t *testing.T) {
	d := newDouble(t)
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	b := d.open()
	var known atomic.Value
	known.Store("first")
	d.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.Header.Get("Authorization"), "Credential="+known.Load().(string)+"/") {
			return false
		}
		refuse(w, http.StatusForbidden, "InvalidAccessKeyId", "")
		return true
	}
	put := func(key string) error { return b.Put(t.Context(), key, nil) }
	write := func(id string) {
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", id, d.secret)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := put("a"); fault.Of(err) != fault.RetentionForbidden || d.requests.Load() != 0 {
		t.Errorf("without credentials: %v, %d requests", err, d.requests.Load())
	}
	write("first")
	if err := put("b"); err != nil {
		t.Error(err)
	}
	known.Store("second")
	write("second")
	if err := put("c"); err != nil {
		t.Error(err)
	}
}

// The probe refuses a store whose deeds are not what retention relies on.
func TestProbeRefusesStores(t *testing.T) {
	var atOnce sync.Mutex
	for name, c := range map[string]struct {
		answer func(d *double, w http.ResponseWriter, r *http.Request) bool
		want   fault.Code
	}{
		"that overwrites": {func(d *double, _ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut { // and ignores the condition
				_ = d.memory.Delete(r.Context(), strings.TrimPrefix(r.URL.Path, "/log/"))
			}
			return false
		}, fault.RetentionCondition},
		"that overwrites what it has had for a while": {func(d *double, _ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && !strings.HasSuffix(r.URL.Path, "-race") {
				_ = d.memory.Delete(r.Context(), strings.TrimPrefix(r.URL.Path, "/log/"))
			}
			return false
		}, fault.RetentionCondition},
		"that lets two create at once": {func(d *double, w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "-race") {
				return false
			}
			atOnce.Lock() // each creates it, whatever the order of their steps
			defer atOnce.Unlock()
			_ = d.memory.Delete(r.Context(), strings.TrimPrefix(r.URL.Path, "/log/"))
			d.serve(w, r)
			return true
		}, fault.RetentionCondition},
		"that does not know the condition": {func(_ *double, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				refuse(w, http.StatusNotImplemented, "NotImplemented", "<Header>If-None-Match</Header>")
			}
			return r.Method == http.MethodPut
		}, fault.RetentionCondition},
		"that keeps what was deleted": {func(_ *double, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete {
				w.WriteHeader(http.StatusNoContent)
			}
			return r.Method == http.MethodDelete
		}, fault.RetentionStore},
		"that does not list": {func(_ *double, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Has("list-type") {
				w.Header().Set("Content-Type", "application/xml")
				_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
			}
			return r.URL.Query().Has("list-type")
		}, fault.RetentionStore},
		"that forbids deletions": {func(_ *double, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete {
				refuse(w, http.StatusForbidden, "AccessDenied", "")
			}
			return r.Method == http.MethodDelete
		}, fault.RetentionForbidden},
		"no store": {func(*double, http.ResponseWriter, *http.Request) bool { return false }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDouble(t)
			d.answer = func(w http.ResponseWriter, r *http.Request) bool { return c.answer(d, w, r) }
			versioned, err := retention.ChainAt(d.open(), "v1/x/1").Probe(t.Context())
			if fault.Of(err) != c.want || versioned || c.want == "" && err != nil {
				t.Errorf("%v, versioned %t", err, versioned)
			}
			if left := d.memory.Keys(); c.want == "" && len(left) > 0 {
				t.Errorf("the probe left %v", left)
			}
		})
	}
}

// A bucket that keeps versions says so.
func TestVersionedBucketIsFound(t *testing.T) {
	d := newDouble(t)
	d.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			w.Header().Set("X-Amz-Version-Id", "3HL4kqtJlcpXroDTDmJ+rmSpXd3dIbrHY")
		}
		return false
	}
	if versioned, err := retention.ChainAt(d.open(), "v1/x/1").Probe(t.Context()); err != nil || !versioned {
		t.Errorf("versioned %t, %v", versioned, err)
	}
}

// Nothing is replaced in a store that does so without its condition, or that keeps what was
// replaced.
func TestStoresThatCannotReplaceAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(d *double, w http.ResponseWriter, r *http.Request) bool
		want   fault.Code
	}{
		"that ignores the condition": {func(d *double, _ http.ResponseWriter, r *http.Request) bool {
			if key := strings.TrimPrefix(r.URL.Path, "/log/"); r.Header.Get("If-Match") != "" {
				if _, about, err := d.memory.Get(r.Context(), key, 0, 0); err == nil {
					r.Header.Set("If-Match", `"`+about.Version+`"`)
				}
			}
			return false
		}, fault.RetentionCondition},
		"that creates what is gone": {func(d *double, _ http.ResponseWriter, r *http.Request) bool {
			if key := strings.TrimPrefix(r.URL.Path, "/log/"); r.Header.Get("If-Match") != "" {
				if err := d.memory.Put(r.Context(), key, []byte("x")); err == nil {
					return true
				}
			}
			return false
		}, fault.RetentionCondition},
		"that does not know the condition": {func(_ *double, w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("If-Match") != "" {
				refuse(w, http.StatusNotImplemented, "NotImplemented", "<Header>If-Match</Header>")
				return true
			}
			return false
		}, fault.RetentionCondition},
		"that replaces nothing": {func(_ *double, _ http.ResponseWriter, r *http.Request) bool {
			_, stale := strings.CutPrefix(r.Header.Get("If-Match"), `"1"`)
			return stale
		}, fault.RetentionCondition},
		"that keeps versions": {func(_ *double, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				w.Header().Set("X-Amz-Version-Id", "v2")
			}
			return false
		}, fault.RetentionVersions},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDouble(t)
			d.answer = func(w http.ResponseWriter, r *http.Request) bool { return c.answer(d, w, r) }
			if _, err := d.open().Hold(t.Context(), "v1/s/1"); fault.Of(err) != c.want {
				t.Error(err)
			}
			if left := d.memory.Keys(); len(left) > 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
}
