package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/retention"
)

// Replace replaces an object if it still has the version that was read, with If-Match.
func (b *Bucket) Replace(ctx context.Context, key string, data []byte, version string) error {
	sum := sha256.Sum256(data)
	opts := minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true} // as in Put
	opts.SetMatchETag(version)
	info, err := b.core.PutObject(ctx, b.location.Bucket, b.key(key), bytes.NewReader(data), int64(len(data)), "", hex.EncodeToString(sum[:]), opts)
	if err == nil {
		if info.VersionID != "" && info.VersionID != "null" {
			b.versioned.Store(true)
		}
		return nil
	}
	if minio.ToErrorResponse(err).StatusCode == http.StatusConflict { // another request for the object was under way
		return retention.ErrChanged
	}
	if err = b.explain(ctx, "put", err); errors.Is(err, retention.ErrExists) {
		return retention.ErrChanged
	}
	return err
}

// Hold writes a small object into the folder, and deletes it, to see whether the bucket replaces
// objects only under their condition and keeps no earlier versions: some stores ignore the
// condition, or create an object that is not there. It keeps nobody from replacing, because Replace
// notices that.
func (b *Bucket) Hold(ctx context.Context, folder string) (release func(), err error) {
	key := folder + "/probe/" + strings.ToLower(rand.Text())
	defer func() { err = errors.Join(err, b.Delete(context.WithoutCancel(ctx), key)) }()
	if err := b.Put(ctx, key, []byte("first")); err != nil {
		return nil, fmt.Errorf("create an object: %w", err)
	}
	_, first, err := b.Get(ctx, key, 0, 1)
	if err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	if err := b.Replace(ctx, key, []byte("second"), first.Version); err != nil {
		return nil, fmt.Errorf("replace an object: %w", err)
	}
	if err := refused(b.Replace(ctx, key, []byte("third"), first.Version), retention.ErrChanged, "replaced an object that had changed"); err != nil {
		return nil, err
	}
	got, second, err := b.Get(ctx, key, 0, 10)
	if err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	if string(got) != "second" {
		return nil, fault.Newf(fault.RetentionStore, "the store did not replace an object")
	}
	if err := b.Delete(ctx, key); err != nil {
		return nil, fmt.Errorf("delete an object: %w", err)
	}
	if err := refused(b.Replace(ctx, key, []byte("fourth"), second.Version), retention.ErrNotFound, "created an object instead of replacing it"); err != nil {
		return nil, err
	}
	if b.Versioned() {
		return nil, fault.Newf(fault.RetentionVersions, "the bucket keeps versions of objects: what is erased stays in them")
	}
	return func() {}, nil
}

// refused returns nil if a request was refused as it must be, and otherwise why not.
func refused(err, as error, did string) error {
	switch {
	case err == nil:
		return fault.Newf(fault.RetentionCondition, "the store %s", did)
	case errors.Is(err, as), errors.Is(err, retention.ErrChanged), errors.Is(err, retention.ErrNotFound): // stores differ in the word for it
		return nil
	}
	return fmt.Errorf("replace an object under a condition: %w", err)
}
