package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mongostream/streamer/internal/s3/uri"
	"github.com/mongostream/streamer/retention"
)

// A Bucket is a store in a bucket.
type Bucket struct {
	location  uri.Location
	core      minio.Core
	transport *http.Transport
	versioned atomic.Bool
}

var _ retention.Store = (*Bucket)(nil)

// page is how many objects a listing returns: the most that S3 does.
const page = 1000

// Open returns a store in the bucket of a URL. It sends nothing. Close closes its connections.
func Open(url string) (*Bucket, error) {
	location, err := uri.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("the URL of the bucket %w", err)
	}
	region := cmp.Or(location.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), "us-east-1")
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   16,
		DisableCompression:    true, // of segments, which are compressed
	}
	core, err := minio.NewCore(cmp.Or(location.Host, "s3.amazonaws.com"), &minio.Options{
		Creds: newCredentials(region), Secure: !location.Plain, Region: region, Transport: dated{transport}, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	return &Bucket{location: location, core: *core, transport: transport}, nil
}

// Close closes idle connections.
func (b *Bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// key returns the key of an object in the bucket.
func (b *Bucket) key(key string) string {
	if b.location.Prefix == "" {
		return key
	}
	return b.location.Prefix + "/" + key
}

// Put implements retention.Store.
func (b *Bucket) Put(ctx context.Context, key string, data []byte) error {
	sum := sha256.Sum256(data)
	// Without DisableContentSha256 the sum is not sent over HTTP, and without the sum it is not
	// checked over HTTPS: a connection that ended early could leave a part of the object.
	opts := minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true}
	opts.SetMatchETagExcept("*")
	info, err := b.core.PutObject(ctx, b.location.Bucket, b.key(key), bytes.NewReader(data), int64(len(data)), "", hex.EncodeToString(sum[:]), opts)
	if err != nil {
		return b.explain(ctx, "put", err)
	}
	if info.VersionID != "" && info.VersionID != "null" {
		b.versioned.Store(true)
	}
	return nil
}

// Versioned reports whether the bucket keeps versions of objects, as the last answers to Put said:
// then deleted objects stay.
func (b *Bucket) Versioned() bool { return b.versioned.Load() }

// Get implements retention.Store.
func (b *Bucket) Get(ctx context.Context, key string, offset, n int64) ([]byte, retention.Object, error) {
	if n <= 0 {
		about, err := b.stat(ctx, key)
		return nil, about, err
	}
	var opts minio.GetObjectOptions
	if err := opts.SetRange(offset, offset+n-1); err != nil {
		return nil, retention.Object{}, fmt.Errorf("get object: %w", err)
	}
	body, info, header, err := b.core.GetObject(ctx, b.location.Bucket, b.key(key), opts)
	if minio.ToErrorResponse(err).Code == minio.InvalidRange { // the object ends before, or is empty
		about, err := b.stat(ctx, key)
		return nil, about, err
	}
	if err != nil {
		return nil, retention.Object{}, b.explain(ctx, "get", err)
	}
	defer body.Close() //nolint:errcheck // only read
	size, err := rangeOf(header, offset, n, info.Size)
	if err != nil {
		return nil, retention.Object{}, b.explain(ctx, "get", err)
	}
	data := make([]byte, max(0, min(n, size-offset)))
	if _, err := io.ReadFull(body, data); err != nil {
		return nil, retention.Object{}, b.explain(ctx, "get", err)
	}
	info.Size = size
	info.Key = key
	return data, objectOf(info), nil
}

// rangeOf returns the size of an object from the header of an answer to a request of n bytes from
// an offset. Anything else than this range is no answer; nor is a page for people, or one of an
// unknown length.
func rangeOf(header http.Header, offset, n, length int64) (size int64, err error) {
	text, found := strings.CutPrefix(header.Get("Content-Range"), "bytes ")
	if !found {
		page := length < 0 || strings.Contains(strings.ToLower(header.Get("Content-Type")), "html")
		if offset == 0 && length <= n && !page { // the whole object, as some stores answer then
			return length, nil
		}
		return 0, errors.New("the store did not answer with the range")
	}
	span, total, _ := strings.Cut(text, "/")
	size, err = strconv.ParseInt(total, 10, 64)
	if want := fmt.Sprintf("%d-%d", offset, min(offset+n, size)-1); err != nil || span != want {
		return 0, fmt.Errorf("the store answered with the range %q instead of %s", text, want)
	}
	return size, nil
}

// stat describes an object.
func (b *Bucket) stat(ctx context.Context, key string) (retention.Object, error) {
	info, err := b.core.StatObject(ctx, b.location.Bucket, b.key(key), minio.StatObjectOptions{})
	if err != nil {
		return retention.Object{}, b.explain(ctx, "look at", err)
	}
	return objectOf(info), nil
}

func objectOf(info minio.ObjectInfo) retention.Object {
	return retention.Object{Name: info.Key[strings.LastIndexByte(info.Key, '/')+1:], Size: info.Size, Modified: info.LastModified, Version: info.ETag}
}

// List implements retention.Store. It costs one request.
func (b *Bucket) List(ctx context.Context, folder, after string) (objects []retention.Object, more bool, err error) {
	prefix := b.key(folder) + "/"
	opts := minio.ListObjectsOptions{Prefix: prefix, MaxKeys: page}
	if after != "" {
		opts.StartAfter = prefix + after
	}
	for info := range b.core.ListObjectsIter(ctx, b.location.Bucket, opts) {
		if info.Err != nil {
			return nil, false, b.explain(ctx, "list", info.Err)
		}
		if name := strings.TrimPrefix(info.Key, prefix); name == "" || strings.HasSuffix(name, "/") {
			continue
		}
		if objects = append(objects, objectOf(info)); len(objects) == page {
			return objects, true, nil
		}
	}
	return objects, false, b.listed(ctx)
}

// listed returns the error of a listing that has ended without one: it also ends with its context,
// which is not the end of the folder.
func (b *Bucket) listed(ctx context.Context) error { return b.explain(ctx, "list", ctx.Err()) }

// folders returns the names of the folders in a folder.
func (b *Bucket) folders(ctx context.Context, folder string) (names []string, err error) {
	prefix := b.key(folder) + "/"
	for info := range b.core.ListObjectsIter(ctx, b.location.Bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if info.Err != nil {
			return nil, b.explain(ctx, "list", info.Err)
		}
		if name, is := strings.CutSuffix(strings.TrimPrefix(info.Key, prefix), "/"); is {
			names = append(names, name)
		}
	}
	return names, b.listed(ctx)
}

// Chains returns the folders of the chains in the store, for retention.ChainAt.
func (b *Bucket) Chains(ctx context.Context) (chains []string, err error) {
	sources, err := b.folders(ctx, "v1")
	if err != nil {
		return nil, err
	}
	for _, source := range sources {
		incarnations, err := b.folders(ctx, "v1/"+source)
		if err != nil {
			return nil, err
		}
		for _, incarnation := range incarnations {
			chain := "v1/" + source + "/" + incarnation
			if segments, _, err := b.List(ctx, chain+"/seg", ""); err != nil {
				return nil, err
			} else if len(segments) > 0 {
				chains = append(chains, chain)
			}
		}
	}
	return chains, nil
}

// Delete implements retention.Store.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	err := b.explain(ctx, "delete", b.core.RemoveObject(ctx, b.location.Bucket, b.key(key), minio.RemoveObjectOptions{}))
	if errors.Is(err, retention.ErrNotFound) {
		return nil
	}
	return err
}

// Now implements retention.Store: the clock is the one of the answers' Date. It asks for an object
// that does not exist, with GET, because an answer to HEAD does not tell why it is an error.
func (b *Bucket) Now(ctx context.Context) (time.Time, error) {
	var date time.Time
	_, _, err := b.Get(context.WithValue(ctx, dateOf{}, &date), "now", 0, 1)
	switch {
	case err != nil && !errors.Is(err, retention.ErrNotFound):
		return time.Time{}, err
	case date.IsZero():
		return time.Time{}, errors.New("read the store's clock: its answer has no Date")
	}
	return date, nil
}

// dateOf is the key of a context's *time.Time that gets the Date of an answer.
type dateOf struct{}

// dated is a transport that tells the Date of answers, and passes on only answers of a store.
type dated struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d dated) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := d.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if date, wanted := req.Context().Value(dateOf{}).(*time.Time); wanted {
		*date, _ = http.ParseTime(resp.Header.Get("Date")) // else it stays zero
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		resp.Body = masked(req, resp.Body)
	}
	// A proxy that reaches no store knows no object, or has one page for every request: that must
	// look neither like an object that does not exist nor like an empty folder. An answer to HEAD
	// has no body that shows the difference.
	kind := resp.Header.Get("Content-Type")
	nothing := resp.StatusCode == http.StatusNotFound && req.Method != http.MethodHead
	listed := req.URL.Query().Has("list-type") && resp.StatusCode < http.StatusMultipleChoices
	lacksXML := (nothing || listed) && !strings.Contains(kind, "xml")
	isOddList := listed && resp.StatusCode != http.StatusOK
	if lacksXML || isOddList {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s %s: answered with %s of type %q, which is not S3's", req.Method, req.URL.Host, short(resp.Status), short(kind))
	}
	return resp, nil
}

// A maskedBody is the beginning of the body of an error, without secrets.
type maskedBody struct {
	io.Reader
	io.Closer
}

// masked returns the body of an error without what its request has proved itself with: errors are
// shown, and a store or a proxy may repeat the request in one.
func masked(req *http.Request, body io.ReadCloser) io.ReadCloser {
	const most = 64 << 10
	text, err := io.ReadAll(io.LimitReader(body, most))
	header := req.Header.Get("Authorization")
	_, signature, _ := strings.Cut(header, "Signature=")
	_, credential, _ := strings.Cut(header, "Credential=")
	key, _, _ := strings.Cut(credential, "/")
	secrets := []string{header, signature, key, req.Header.Get("X-Amz-Security-Token")}
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // one may be in another
	for _, secret := range secrets {
		if secret != "" {
			text = bytes.ReplaceAll(text, []byte(secret), []byte("***"))
		}
	}
	var rest io.Reader = bytes.NewReader(text)
	if err != nil {
		rest = io.MultiReader(rest, brokenReader{err})
	}
	return maskedBody{rest, body}
}

// A brokenReader returns an error.
type brokenReader struct{ err error }

// Read implements io.Reader.
func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }
